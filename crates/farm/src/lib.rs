//! What is done to named data: the store of names, and the verbs that register and locate.
