//! Small files over a long way: requests that are sent before earlier answers.
//!
//! A proxy that holds back every word of the node a little counts turns: how often
//! the client waited for an answer before it spoke again. Each is a round trip.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Node, Scratch, assert_same_tree, ours};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// The words of one session, by turns.
#[derive(Clone, Debug, Default)]
struct Said {
    turns: Vec<String>,
    spoke_first: bool,
}

/// A proxy before the control port of a node that adds delay.
struct Far {
    port: u16,
    said: Arc<Mutex<Vec<Said>>>,
}

impl Far {
    fn from(node: &Node) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (all, to) = (said.clone(), node.port);
        thread::spawn(move || {
            for client in listener.incoming() {
                let nth = {
                    let mut all = all.lock().unwrap();
                    all.push(Said::default());
                    all.len() - 1
                };
                let node = TcpStream::connect(("127.0.0.1", to)).unwrap();
                pass_on(client.unwrap(), node, all.clone(), nth);
            }
        });
        Self { port, said }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://127.0.0.1:{}/{path}", self.port)
    }

    fn said(&self) -> Vec<Said> {
        self.said.lock().unwrap().clone()
    }
}

fn pass_on(client: TcpStream, node: TcpStream, said: Arc<Mutex<Vec<Said>>>, nth: usize) {
    let answered = Arc::new(AtomicBool::new(false));
    let (mut from_node, mut to_client) = (node.try_clone().unwrap(), client.try_clone().unwrap());
    let has_answered = answered.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_node.read(&mut buffer) {
            thread::sleep(WAY); // the delay of the line, not a wait
            has_answered.store(true, SeqCst);
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let (mut from_client, mut to_node) = (client, node);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_client.read(&mut buffer) {
            let words = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let waited = answered.swap(false, SeqCst);
            let mut all = said.lock().unwrap();
            let this = &mut all[nth];
            this.spoke_first |= this.turns.is_empty() && !waited;
            match this.turns.last_mut().filter(|_| !waited) {
                Some(turn) => turn.push_str(&words),
                None => this.turns.push(words),
            }
            drop(all);
            if to_node.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to_node.shutdown(Shutdown::Both);
    });
}

fn tree(scratch: &Scratch, name: &str) {
    for directory in 0..DIRECTORIES {
        for file in 0..20 {
            scratch.file(format!("{name}/d{directory}/f{file}"), 3000 + file);
        }
    }
}

fn copy(from: &str, to: &Path) {
    ours(["cp", "-q", "-r", from, to.to_str().unwrap()]).ok();
}

/// Returns in which turn something was said first.
fn turn_of(said: &Said, word: &str) -> Option<usize> {
    said.turns.iter().position(|turn| turn.contains(word))
}

#[test]
fn far_tree_needs_three_turns() {
    let scratch = Scratch::new();
    scratch.dir("export");
    scratch.dir("here");
    tree(&scratch, "export/small");
    let node = Node::start(&scratch.join("export"));
    let far = Far::from(&node);
    copy(&far.url("small"), &scratch.join("here"));
    assert_same_tree(&scratch.join("export/small"), &scratch.join("here/small"));
    let said = far.said();
    let first = &said[0];
    assert!(!first.spoke_first, "a stranger is not told anything ahead");
    let words = ["USER", "MLST", "EPSV", "MLSR"].map(|word| turn_of(first, word));
    assert_eq!(
        words,
        [Some(0), Some(0), Some(1), Some(2)],
        "{:?}",
        first.turns
    );
    check_others(&said[1..], "RETR");
}

/// Whether there is room for a new tree costs a turn for the name and one for the space.
#[test]
fn far_upload_needs_four_turns() {
    let scratch = Scratch::new();
    scratch.dir("export");
    tree(&scratch, "small");
    let node = Node::start(&scratch.join("export"));
    let far = Far::from(&node);
    let source = scratch.join("small");
    let to = far.url("");
    copy(source.to_str().unwrap(), Path::new(&to));
    assert_same_tree(&source, &scratch.join("export/small"));
    let said = far.said();
    let first = &said[0];
    assert_eq!(turn_of(first, "MLST"), Some(0), "{:?}", first.turns);
    assert_eq!(turn_of(first, "SPACE"), Some(2), "{:?}", first.turns);
    // Another conversation may be ready by then, and make them.
    let turns = said.iter().flat_map(|said| &said.turns);
    let made = turns.map(|turn| turn.matches("MKD ").count()).max();
    assert_eq!(made, Some(DIRECTORIES + 1), "all at once: {said:?}");
    check_others(&said[1..], "ESTO");
}

/// A listener holds a port for a whole session of MODE E, so a dozen conversations
/// that were made ready cannot all have one.
#[test]
fn far_tree_needs_one_port() {
    let scratch = Scratch::new();
    scratch.dir("export");
    scratch.dir("here");
    tree(&scratch, "export/small");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let narrow = scratch.join("narrow.toml");
    let port = port.unwrap().port();
    std::fs::write(&narrow, format!("[data]\nports = \"{port}\"\n")).unwrap();
    let node = Node::with(
        &scratch.join("export"),
        &["--anonymous", "write", "--config", narrow.to_str().unwrap()],
    );
    let far = Far::from(&node);
    copy(&far.url("small"), &scratch.join("here"));
    assert_same_tree(&scratch.join("export/small"), &scratch.join("here/small"));
    let back = far.url("back");
    copy(
        scratch.join("here/small").to_str().unwrap(),
        Path::new(&back),
    );
    assert_same_tree(&scratch.join("here/small"), &scratch.join("export/back"));
}

/// Further conversations log in before they are greeted, and move files at once.
fn check_others(others: &[Said], moves: &str) {
    assert!(others.len() > 1, "one conversation is slow to begin");
    for other in others {
        assert!(other.spoke_first, "it is known: {:?}", other.turns);
        let words = ["USER", "MODE E", "EPSV"].map(|word| turn_of(other, word));
        assert_eq!(words, [Some(0); 3], "{:?}", other.turns);
        if let Some(turn) = turn_of(other, moves) {
            let made = usize::from(turn_of(other, "MKD ").is_some());
            assert_eq!(turn, 1 + made, "{:?}", other.turns);
        }
    }
    let moved = others.iter().filter(|said| turn_of(said, moves).is_some());
    assert!(moved.count() > 0, "no session moved the files");
}

const DIRECTORIES: usize = 6;
/// Farther than what counts as near, and than a busy machine takes to hand on a line:
/// else one breath would be heard as two.
const WAY: Duration = Duration::from_millis(150);
