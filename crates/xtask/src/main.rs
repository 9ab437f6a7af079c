//! Checks of the source: `cargo xtask tidy` holds the rules that a
//! compiler does not know; `--shrink` lowers the list of old breaches.
//! `cargo xtask requirements` writes which test shows which requirement.

mod circles;
mod code;
mod debts;
mod links;
mod requirements;
mod table;
mod tidy;

use std::{env, fs, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(false),
        ["tidy", "--shrink"] => tidy(true),
        ["requirements"] => requirements(),
        _ => {
            eprintln!("usage: cargo xtask tidy [--shrink] | requirements");
            ExitCode::from(2)
        }
    }
}

fn requirements() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let write = |(page, text)| fs::write(root.join(page), text);
    let written =
        tidy::requirements(&root).and_then(|(pages, _)| pages.into_iter().try_for_each(write));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("requirements: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(shrinks: bool) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = tidy::check_tree(&root).and_then(|mut checked| {
        if shrinks {
            fs::write(root.join(debts::LIST), &checked.shrunk)?;
            checked = tidy::check_tree(&root)?;
        }
        Ok(checked)
    });
    if let Ok(checked) = &checked {
        checked
            .notes
            .iter()
            .for_each(|note| println!("note: {note}"));
    }
    match checked {
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
