"""Cut-off rules: how long each iteration waits for workers."""
