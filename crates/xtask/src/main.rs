//! What the house does to itself: `cargo xtask tidy` holds the rules that a
//! compiler does not know. It changes nothing.

mod code;
mod table;
mod tidy;

use std::{env, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        _ => {
            eprintln!("usage: cargo xtask tidy");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match tidy::check_tree(&root) {
        Ok(checked) if checked.complaints.is_empty() => {
            println!("tidy: {} files, no complaints", checked.files);
            ExitCode::SUCCESS
        }
        Ok(checked) => {
            for complaint in &checked.complaints {
                eprintln!("{complaint}");
            }
            eprintln!("tidy: {} complaints", checked.complaints.len());
            ExitCode::FAILURE
        }
        Err(cause) => {
            eprintln!("tidy: cannot read the tree: {cause}");
            ExitCode::FAILURE
        }
    }
}
