//! A guard for tests: wraps every line, and hides nothing.

use super::{Guard, Spoiled};

/// Inverts every bit, and numbers the lines of each direction. A test fails if a line is not wrapped, is wrapped
/// twice or is out of order.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    sent: u8,
    came: u8,
}

impl Guard for Turned {
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.sent += 1;
        let turned = plain.iter().map(|b| !b);
        Ok([self.sent].into_iter().chain(turned).collect())
    }

    fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.came += 1;
        match wrapped {
            [number, turned @ ..] if *number == self.came => {
                Ok(turned.iter().map(|b| !b).collect())
            }
            _ => Err(Spoiled("not sent by the peer, or out of order".into())),
        }
    }
}
