//! Tests that see the inside of a depot: faults, interleavings, power cuts.

mod full_disk;
mod looking;
mod meanwhile;
mod planned;
mod simulated;
pub(crate) mod tested;
