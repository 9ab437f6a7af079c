//! Gives the library the name that programs ask for when they start, and keeps it loaded: a child that was forked
//! calls it, and so does the end of each thread.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgodwit.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
