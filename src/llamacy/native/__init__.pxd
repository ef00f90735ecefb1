# Marks the folder as a package for cimport.
