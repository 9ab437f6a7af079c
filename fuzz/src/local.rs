//! Parsers of the talk between programs of this machine and their node.

use godwit_wire::local::{
    Decoder, Error, RequestHead, ResponseHead, frame,
    records::{self, BEFORE_BYTES},
};

/// A conversation: frames are found however it comes divided, and what is understood is written as it was read.
pub fn local_frames(bytes: &[u8]) {
    let whole = found(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(whole, found(&single));
    for (head, body) in whole {
        local_heads(&head);
        if let Ok(writes) = records::of(&body) {
            let mut again = Vec::new();
            for (offset, bytes) in writes {
                records::push(&mut again, offset, bytes);
            }
            assert_eq!(again, body);
            assert!(body.is_empty() || body.len() >= BEFORE_BYTES);
        }
    }
}

/// The head of a frame.
pub fn local_heads(head: &[u8]) {
    if let Ok(asked) = RequestHead::read(head) {
        let again = asked.write(b"").map(|frame| RequestHead::read(&frame[8..]));
        // Escapes may make it too long to be said.
        assert!(matches!(again, Ok(Ok(again)) if again == asked) || head.len() > 4096);
    }
    match ResponseHead::read(head) {
        Ok(told) => {
            let again = told.write(b"").map(|frame| ResponseHead::read(&frame[8..]));
            assert!(matches!(again, Ok(Ok(again)) if again == told) || head.len() > 4096);
        }
        Err(Error::Unknown { .. } | Error::BadHead(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

type Pieces = Vec<(Vec<u8>, Vec<u8>)>;

fn found(pieces: &[&[u8]]) -> Pieces {
    let (mut decoder, mut frames) = (Decoder::new(), Pieces::new());
    for piece in pieces {
        let mut input = *piece;
        loop {
            match decoder.next(input) {
                Ok((taken, Some(found))) => {
                    let bytes = frame::frame(&found.head, &found.body).expect("it was read");
                    assert_eq!(
                        Decoder::new().next(&bytes).map(|(len, _)| len),
                        Ok(bytes.len())
                    );
                    frames.push((found.head, found.body));
                    input = &input[taken..];
                }
                Ok((taken, None)) => {
                    assert_eq!(taken, input.len());
                    break;
                }
                Err(_) => return frames,
            }
        }
    }
    frames
}
