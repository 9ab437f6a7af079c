//! Protection of the lines of a control channel once both sides have proved their identity (RFC 2228), for either
//! end.

use godwit_trust::Context;
use godwit_wire::shield::{Guard, Spoiled};

/// Wraps lines by what both sides proved themselves with.
#[derive(Debug)]
pub struct LineGuard<C>(pub C);

impl<C: Context> Guard for LineGuard<C> {
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.0.wrap(plain).map_err(|e| Spoiled(e.to_string()))
    }

    fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.0.unwrap(wrapped).map_err(|e| Spoiled(e.to_string()))
    }
}
