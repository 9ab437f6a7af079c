//! `AUTH`: both sides prove who they are, by tokens that others make.

use super::{Line, Refusal, Talk};
use crate::{Error, base64, reply::Reply};

/// What came of a token of the other side.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Token {
    /// To be sent, if anything.
    pub bytes: Option<Vec<u8>>,
    /// The other side has proved who it is, and nothing more is due from it.
    pub done: bool,
}

/// Takes a token of the other side.
pub type Steps<'a, E> = dyn FnMut(&[u8]) -> Result<Token, E> + 'a;

/// Exchanges tokens of a mechanism until both sides are content; `first` begins, and
/// `step` takes what the server says. The inner error is the server's refusal. The reply that
/// ends this is the last one in clear.
pub fn authenticate<T: Talk>(
    talk: &mut T,
    mechanism: &str,
    first: Vec<u8>,
    step: &mut Steps<'_, T::Error>,
) -> Result<Result<(), Refusal>, T::Error> {
    let offered = talk.ask_one(Line::new("AUTH").and(mechanism))?;
    if offered.code != 334 {
        return Ok(Err(refused(&offered)));
    }
    let (mut token, mut done) = (first, false);
    for _ in 0..ROUNDS_MAX {
        let reply = talk.ask_one(Line::new("ADAT").and(base64::encode(&token)))?;
        if !matches!(reply.code, 235 | 335) {
            return Ok(Err(refused(&reply)));
        }
        let mut next = None;
        if let Some(came) = token_of(&reply)? {
            let stepped = step(&came)?;
            (next, done) = (stepped.bytes, done || stepped.done);
        }
        match (reply.code, next) {
            (235, None) if done => return Ok(Ok(())),
            (335, Some(bytes)) => token = bytes,
            (235, _) => return bad("the server ends it too soon"),
            _ => return bad("the server waits for more than is due"),
        }
    }
    bad("it has no end")
}

/// Reads what stands behind `ADAT=`; a 235 often has none.
fn token_of(reply: &Reply) -> Result<Option<Vec<u8>>, Error> {
    let text = reply.lines.first().map_or(&[][..], Vec::as_slice);
    let Some(at) = text.windows(5).position(|w| w == b"ADAT=") else {
        return Ok(None);
    };
    match base64::decode(&text[at + 5..]) {
        Some(token) => Ok(Some(token)),
        None => Err(Error::BadProof {
            why: "a token of the server is not base64",
        }),
    }
}

/// Every other word is a no, however it is numbered.
fn refused(reply: &Reply) -> Refusal {
    Refusal {
        code: reply.code,
        said: reply.said(),
        why: match Refusal::of(reply) {
            Some(refusal) if refusal.why == super::Why::Busy => refusal.why,
            _ => super::Why::Login,
        },
    }
}

fn bad<T, E: From<Error>>(why: &'static str) -> Result<T, E> {
    Err(Error::BadProof { why }.into())
}

/// TLS with delegation takes four.
const ROUNDS_MAX: usize = 16;
