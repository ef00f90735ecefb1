# Counters are named tuples and are read by Python functions: nothing is declared here.
