//! A guard that hides nothing from anybody who looks, for tests.

use super::{Guard, Spoiled};

/// Turns every bit around, and numbers what goes each way: enough to see that
/// every line is wrapped, once, and in order.
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
            _ => Err(Spoiled("nobody sent this, or not now".into())),
        }
    }
}
