//! Serves a directory: `serve DIR ADDRESS read|write`, for trying things out.

use godwit_node::{Config, run};

fn main() -> Result<(), godwit_node::Error> {
    let mut words = std::env::args().skip(1);
    let mut word = |default: &str| words.next().unwrap_or_else(|| default.into());
    let flags = [
        ("node.export", "1", word(".")),
        ("ftp.listen", "2", word("127.0.0.1:0")),
        ("anonymous.access", "3", word("read")),
    ];
    let config = Config::load(None, std::env::vars(), &flags)?;
    let again = config.clone();
    run(
        config,
        move || Ok(again.clone()),
        |addresses| println!("{:?}", addresses.ftp),
    )
}
