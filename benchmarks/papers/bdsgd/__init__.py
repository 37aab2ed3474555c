"""BDSGD (Teng and Wood, NeurIPS 2018): cut-offs from predicted run times."""
