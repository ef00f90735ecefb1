# Saved states of contexts: functions of the module `state`, which the methods of Context call.
#
# Nothing is declared here: the functions are Python functions, and a state is bytes.
