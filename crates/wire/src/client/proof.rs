//! `AUTH`: both sides prove who they are, by tokens that others make.

use super::{Line, Refusal, Talk};
use crate::{Error, base64, reply::Reply};

/// The answer to a token of the other side.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Token {
    /// To be sent, if anything.
    pub bytes: Option<Vec<u8>>,
    /// The other side has proved who it is, and nothing more is due from it.
    pub done: bool,
}

/// Takes a token of the other side.
pub type Steps<'a, E> = dyn FnMut(&[u8]) -> Result<Token, E> + 'a;

/// How much is sent before a reply is awaited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProofPace {
    /// The first token behind `AUTH`, in one breath: for servers of ours.
    AtOnce,
    /// One after the other.
    StepByStep,
}

/// Exchanges tokens of a mechanism until both sides are satisfied. `first` begins, and `step` takes the server's
/// tokens. The inner error is the server's refusal. The last reply of the exchange is the last one in clear.
pub fn authenticate<T: Talk>(
    talk: &mut T,
    mechanism: &str,
    first: Vec<u8>,
    pace: ProofPace,
    step: &mut Steps<'_, T::Error>,
) -> Result<Result<(), Refusal>, T::Error> {
    let auth = Line::new("AUTH").and(mechanism);
    let mut ahead = None;
    let offered = match pace {
        ProofPace::StepByStep => talk.ask_one(auth)?,
        ProofPace::AtOnce => {
            let mut replies = talk.ask(&[auth, adat(&first)])?;
            ahead = replies.pop();
            replies.pop().expect("as many replies as lines")
        }
    };
    if offered.code != 334 {
        return Ok(Err(refused(&offered)));
    }
    let (mut token, mut done) = (first, false);
    for _ in 0..ROUNDS_MAX {
        let reply = match ahead.take() {
            Some(reply) => reply,
            None => talk.ask_one(adat(&token))?,
        };
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

fn adat(token: &[u8]) -> Line {
    Line::new("ADAT").and(base64::encode(token))
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
    Refusal::of_proof(reply)
}

fn bad<T, E: From<Error>>(why: &'static str) -> Result<T, E> {
    Err(Error::BadProof { why }.into())
}

/// TLS with delegation takes four.
const ROUNDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers line by line, and notes how many lines came in each breath.
    struct Scripted {
        replies: Vec<Reply>,
        breaths: Vec<usize>,
    }

    impl Talk for Scripted {
        type Error = Error;

        fn ask(&mut self, lines: &[Line]) -> Result<Vec<Reply>, Error> {
            self.breaths.push(lines.len());
            Ok(self.replies.drain(..lines.len()).collect())
        }

        fn greeting(&mut self) -> Result<Reply, Error> {
            unreachable!("it is greeted before")
        }

        fn ask_before_greeting(&mut self, _: &[Line]) -> Result<(Reply, Vec<Reply>), Error> {
            unreachable!("it is greeted before")
        }
    }

    fn said(pace: ProofPace, replies: &[(u16, &str)]) -> (Result<(), Refusal>, Vec<usize>) {
        let replies = replies.iter().map(|&(code, text)| Reply::new(code, text));
        let mut talk = Scripted {
            replies: replies.collect(),
            breaths: Vec::new(),
        };
        let mut due = [true, false].into_iter();
        let mut step = |_: &[u8]| {
            let bytes = due.next().unwrap_or(false).then(|| b"next".to_vec());
            Ok(Token { bytes, done: true })
        };
        let came = authenticate(&mut talk, "GSSAPI", b"first".to_vec(), pace, &mut step);
        (came.unwrap(), talk.breaths)
    }

    #[test]
    fn node_receives_first_token_with_auth() {
        let good = [(334, "go on"), (335, "ADAT=AAAA"), (235, "ADAT=AAAA")];
        assert_eq!(said(ProofPace::AtOnce, &good), (Ok(()), vec![2, 1]));
        assert_eq!(said(ProofPace::StepByStep, &good), (Ok(()), vec![1, 1, 1]));
        let bad = [(504, "no such thing"), (503, "AUTH GSSAPI first.")];
        for (pace, breaths) in [(ProofPace::AtOnce, [2]), (ProofPace::StepByStep, [1])] {
            let (refused, asked) = said(pace, &bad);
            assert_eq!((refused.unwrap_err().code, &asked[..]), (504, &breaths[..]));
        }
    }
}
