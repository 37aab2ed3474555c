"""PSP-SGD: partially synchronous parallelism, with partial push and partial pull."""
