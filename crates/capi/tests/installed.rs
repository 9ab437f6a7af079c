//! The library as it is installed: found by pkg-config, of a version, and used from C++.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::programs::{Scratch, good, install, sources};
use std::{fs, process::Command};

/// Returns the functions that the header declares.
fn declared() -> Vec<String> {
    let header = fs::read_to_string(sources().join("include/godwit.h")).unwrap();
    let names = header.match_indices('(').filter_map(|(at, _)| {
        let before = &header[..at];
        let line = before.rsplit('\n').next()?;
        let name = before
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        let is_one = name.starts_with("gass_") || name.starts_with("godwit_");
        let is_code = !line.starts_with(['/', ' ', '*'])
            && !line.contains("/*")
            && !line.starts_with("typedef");
        (is_one && is_code).then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn pkg_config_and_cxx_find_whole_library() {
    let version = env!("CARGO_PKG_VERSION");
    let scratch = Scratch::new();
    let prefix = scratch.path();
    for dir in ["lib/pkgconfig", "include"] {
        fs::create_dir_all(prefix.join(dir)).unwrap();
    }
    install(&prefix.join("lib"));
    let header = sources().join("include/godwit.h");
    fs::copy(header, prefix.join("include/godwit.h")).unwrap();
    let told = fs::read_to_string(sources().join("godwit.pc.in")).unwrap();
    let told = told.replace("@PREFIX@", prefix.to_str().unwrap());
    let told = told.replace("@VERSION@", version);
    assert!(!told.contains('@'), "{told}");
    fs::write(prefix.join("lib/pkgconfig/godwit.pc"), told).unwrap();
    let asked = |words: &[&str]| {
        let mut asked = Command::new("pkg-config");
        asked
            .args(words)
            .arg("godwit")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        asked.output()
    };
    let flags = match asked(&["--cflags", "--libs"]) {
        Ok(done) => String::from_utf8(done.stdout).unwrap(),
        Err(error) => return common::skip(&format!("pkg-config: {error}")),
    };
    let found = asked(&["--modversion"]).unwrap().stdout;
    assert_eq!(String::from_utf8(found).unwrap().trim(), version);
    // Each function is there for C++ under the name that C gives it.
    let names = declared();
    assert!(
        names.len() > 50 && names.iter().any(|name| name == "gass_server_step"),
        "{names:?}"
    );
    let each: String = names
        .iter()
        .map(|name| format!("    each(&{name});\n"))
        .collect();
    let source = format!(
        "#include <godwit.h>\n#include <cstdio>\nstatic int count;\n\
         template <class F> static void each(F *function) {{ count += function != nullptr; }}\n\
         int main()\n{{\n{each}    gass_server_options options = {{}};\n    options.size = sizeof options;\n\
         \n    std::printf(\"%d %d\\n\", count, godwit_api_version() == GODWIT_API_VERSION);\n    return 0;\n}}\n"
    );
    fs::write(prefix.join("all.cc"), source).unwrap();
    let program = prefix.join("all");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-o"]);
    compiler
        .arg(&program)
        .arg(prefix.join("all.cc"))
        .args(flags.split_whitespace());
    good(&mut compiler);
    let said = good(Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(said, format!("{} 1\n", names.len()));
}
