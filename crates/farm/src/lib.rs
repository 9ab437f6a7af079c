//! Named data: the store of names, and the registration of files that lie somewhere.
