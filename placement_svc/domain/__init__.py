"""The meaning of placement: plain data and pure functions, without HTTP and without SQL."""
