//! The paper's catalog (§5.1, figure 5): collections, locations, logical files and their attributes, and questions to them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Node, Said, Scratch, by_name};
use std::fs;

/// The collections of figure 5: the year 1998 in part at one node and whole at another, 1999 without any copy.
struct World {
    scratch: Scratch,
    jupiter: Node,
    sprite: Node,
}

const MONTHS: [&str; 6] = ["Jan", "Feb", "Mar", "Jun", "Oct", "Dec"];
const AT_JUPITER: [&str; 3] = ["Mar", "Jun", "Oct"];
const YEAR: &str = "grid:/co2-1998";

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let [jupiter, sprite] =
            [("jupiter", "nfs/climate"), ("sprite", "pub/pcmdi")].map(|(site, path)| {
                let root = scratch.dir(site);
                fs::create_dir_all(root.join(path)).unwrap();
                for (at, month) in MONTHS.into_iter().enumerate() {
                    if site == "sprite" || AT_JUPITER.contains(&month) {
                        let bytes = vec![at as u8; 1000 * (at + 1)];
                        fs::write(root.join(path).join(format!("{month} 1998")), bytes).unwrap();
                    }
                }
                Node::start(&root)
            });
        let world = Self {
            scratch,
            jupiter,
            sprite,
        };
        world.run(&["catalog", "init"]);
        for (site, url) in [
            ("jupiter", world.jupiter.url("nfs/climate")),
            ("sprite", world.sprite.url("pub/pcmdi")),
        ] {
            world.run(&["location", "add", site, &url, YEAR]);
            world.run(&["register", "-r", &url, "--as", YEAR]);
        }
        world.run(&[
            "register",
            "grid:/co2-1999/Jan 1999",
            "grid:/co2-1999/Feb 1999",
        ]);
        world
    }

    fn said(&self, words: &[&str]) -> Said {
        Said::of(&mut by_name(&self.scratch, words))
    }

    fn run(&self, words: &[&str]) -> String {
        String::from_utf8(self.said(words).ok().stdout).unwrap()
    }

    /// Returns the lines that a command prints, sorted.
    fn lines(&self, words: &[&str]) -> Vec<String> {
        let mut lines: Vec<_> = self.run(words).lines().map(String::from).collect();
        lines.sort();
        lines
    }
}

/// Returns the names of months as the program prints them, sorted.
fn months(of: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = of
        .iter()
        .map(|month| format!("{YEAR}/{month}%201998"))
        .collect();
    names.sort();
    names
}

#[test] //= REPLICAS-23 REPLICAS-26 REPLICAS-28 REPLICAS-31 REPLICAS-33
fn figure_5_is_built_and_asked() {
    let world = World::new();
    assert_eq!(world.run(&["ls", "grid:/"]), "co2-1998/\nco2-1999/\n");
    // One URL for each file of each location.
    let jan = world.run(&["locate", &format!("{YEAR}/Jan 1998")]);
    let url = world.sprite.url("pub/pcmdi/Jan%201998");
    assert_eq!(jan, format!("whole    sprite  {url}  {YEAR}/Jan%201998\n"));
    let mar = world.run(&["locate", &format!("{YEAR}/Mar 1998")]);
    assert!(
        mar.contains(&world.jupiter.url("nfs/climate/Mar%201998")),
        "{mar}"
    );
    assert_eq!(mar.lines().count(), 2, "{mar}");
    // The missing files of a location, and the complete locations.
    let lacked = world.lines(&["location", "ls", YEAR, "--lacks", "jupiter"]);
    assert_eq!(lacked, months(&["Jan", "Feb", "Dec"]));
    assert_eq!(
        world.run(&["location", "ls", YEAR, "--lacks", "sprite"]),
        ""
    );
    assert_eq!(
        world
            .said(&["location", "ls", YEAR, "--lacks", "typo"])
            .status,
        Some(4)
    );
    assert_eq!(
        world.run(&["locate", "--by-site", YEAR]),
        "sprite  6 of 6\njupiter  3 of 6\n"
    );
    // The size of a logical file.
    let said = world.run(&["stat", "--json", &format!("{YEAR}/Mar 1998")]);
    assert!(said.contains("\"size\":3000"), "{said}");
}

#[test] //= REPLICAS-23
fn sites_of_a_set_are_counted() {
    let world = World::new();
    let [jan, mar, none] = [
        "co2-1998/Jan 1998",
        "co2-1998/Mar 1998",
        "co2-1999/Jan 1999",
    ]
    .map(|name| format!("grid:/{name}"));
    let asked = world.run(&["locate", "--by-site", "--json", &jan, &mar, &none]);
    let sites: Vec<serde_json::Value> = asked
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let site = |at: usize| {
        (
            sites[at]["site"].as_str(),
            sites[at]["files"].as_u64(),
            sites[at]["of"].as_u64(),
        )
    };
    assert_eq!(site(0), (Some("sprite"), Some(2), Some(3)), "{asked}");
    assert_eq!(site(1), (Some("jupiter"), Some(1), Some(3)), "{asked}");
    // A second name of one file is no second file.
    world.run(&["link", &jan, "grid:/co2-1999/again"]);
    assert_eq!(
        world.run(&["locate", "--by-site", &jan, "grid:/co2-1999/again"]),
        "sprite  1 of 1\n"
    );
    let absent = world.said(&["locate", "--by-site", &jan, "grid:/co2-1998/May 1998"]);
    assert_eq!(absent.status, Some(4));
}

#[test] //= FARM-98 REPLICAS-2 REPLICAS-20
fn find_answers_from_the_catalog() {
    let mut world = World::new();
    world.run(&["attr", &format!("{YEAR}/Feb 1998"), "quality=good"]);
    world.run(&["attr", YEAR, "unit=ppm"]);
    world.jupiter.kill();
    world.sprite.kill();
    for (conditions, expected) in [
        ("-copies 1 -type f", &["Jan", "Feb", "Dec"][..]),
        ("-copies +1", &["Mar", "Jun", "Oct"]),
        ("-at jupiter -size -4K", &["Mar", "Jun"]),
        ("-at jupiter -at sprite -name Oct*", &["Oct"]),
        ("-attr quality", &["Feb"]),
        ("-attr quality=good -newer 1970-01-02", &["Feb"]),
        ("-attr quality=bad", &[]),
        ("-size 1000", &["Jan"]),
    ] {
        let mut words = vec!["find", YEAR];
        words.extend(conditions.split(' '));
        assert_eq!(world.lines(&words), months(expected), "{conditions}");
    }
    assert_eq!(
        world.run(&["find", "grid:/", "-attr", "unit=ppm"]),
        format!("{YEAR}\n")
    );
    let none = world.lines(&["find", "grid:/", "-copies", "0"]);
    assert_eq!(
        none,
        ["grid:/co2-1999/Feb%201999", "grid:/co2-1999/Jan%201999"]
    );
    let refused = world.said(&["find", "sprite", "-copies", "1"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
}

#[test] //= FARM-98 REPLICAS-2
fn subset_is_replicated_by_conditions() {
    let world = World::new();
    let to = ["--to", "jupiter", "-copies", "1"];
    world.run(&[&["replicate", YEAR, "-name", "[FD]*"], &to[..]].concat());
    let lacked = world.lines(&["location", "ls", YEAR, "--lacks", "jupiter"]);
    assert_eq!(lacked, months(&["Jan"]));
    // A named file that does not meet the conditions is skipped.
    let jan = format!("{YEAR}/Jan 1998");
    world.run(&["replicate", &jan, "--size", "+1M", "--to", "jupiter"]);
    assert_eq!(
        world.lines(&["location", "ls", YEAR, "--lacks", "jupiter"]),
        lacked
    );
    world.run(&[&["replicate", &jan], &to[..]].concat());
    assert_eq!(
        world.run(&["location", "ls", YEAR, "--lacks", "jupiter"]),
        ""
    );
}

#[test] //= REPLICAS-20
fn every_entry_has_attributes() {
    let world = World::new();
    let feb = format!("{YEAR}/Feb 1998");
    world.run(&["attr", &feb, "quality=good"]);
    world.run(&["attr", YEAR, "unit=ppm"]);
    world.run(&[
        "location",
        "set",
        "jupiter",
        YEAR,
        "media=disk",
        "protocol=ftp",
    ]);
    world.run(&["location", "set", "jupiter", YEAR, "protocol="]);
    assert_eq!(world.run(&["attr", &feb]), "quality=good\n");
    assert_eq!(world.run(&["attr", YEAR]), "unit=ppm\n");
    let shown = world.lines(&["location", "ls", YEAR]);
    assert!(
        shown[0].starts_with("jupiter") && shown[0].ends_with("  media=disk"),
        "{shown:?}"
    );
    assert!(!shown[1].contains('='), "{shown:?}");
    let refused = world.said(&["location", "set", "jupiter", YEAR, "media"]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let absent = world.said(&["location", "set", "nowhere", YEAR, "media=tape"]);
    assert_eq!(absent.status, Some(4), "{absent:?}");
}

#[test] //= REPLICAS-38
fn name_alone_gets_a_copy_later() {
    let world = World::new();
    let name = "grid:/co2-1999/Jan 1999";
    assert_eq!(
        world.run(&["locate", name]),
        "nowhere  grid:/co2-1999/Jan%201999\n"
    );
    let unread = world.said(&["cat", name]);
    assert_eq!(unread.status, Some(1), "{unread:?}");
    world.run(&["register", name]);
    world.run(&[
        "register",
        &world.sprite.url("pub/pcmdi/Jan%201998"),
        "--as",
        name,
    ]);
    assert_eq!(world.run(&["cat", name]).len(), 1000);
    let unnamed = world.said(&["register", &world.sprite.url("pub/pcmdi")]);
    assert_eq!(unnamed.status, Some(2), "{unnamed:?}");
}

#[test] //= FARM-98 REPLICAS-30
fn linked_file_is_in_two_collections() {
    let world = World::new();
    let (old, new) = (format!("{YEAR}/Dec 1998"), "grid:/winter/Dec 1998");
    world.run(&["mkdir", "grid:/winter"]);
    world.run(&["link", &old, new]);
    world.run(&["attr", new, "cold=yes"]);
    assert_eq!(world.run(&["attr", &old]), "cold=yes\n");
    assert_eq!(world.run(&["ls", "grid:/winter"]), "Dec 1998\n");
    world.run(&["replicate", &old, "--to", "jupiter"]);
    assert_eq!(world.run(&["locate", new]).lines().count(), 2);
    world.run(&["rm", &old]);
    assert_eq!(world.run(&["cat", new]).len(), 6000);
}

#[test] //= REPLICAS-16 REPLICAS-33
fn parts_at_two_sites_are_read() {
    let mut world = World::new();
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    for (path, part) in [
        ("jupiter/first", &bytes[..120_000]),
        ("sprite/last", &bytes[80_000..]),
    ] {
        fs::write(world.scratch.join(path), part).unwrap();
    }
    let name = format!("{YEAR}/parts");
    let first = world.jupiter.url("first");
    let unknown = world.said(&["register", "--range", "0-120000", &first, "--as", &name]);
    assert_ne!(
        unknown.status,
        Some(0),
        "the length of the whole is not known"
    );
    world.run(&[
        "register", "--range", "0-120000", "--size", "200000", &first, "--as", &name,
    ]);
    let last = world.sprite.url("last");
    world.run(&["register", "--range", "80000-200000", &last, "--as", &name]);
    world.run(&["cp", &name, "copy"]);
    assert_eq!(fs::read(world.scratch.join("copy")).unwrap(), bytes);
    let shown = world.lines(&["locate", &name]);
    let expected = [(&first, "0-120000"), (&last, "80000-200000")];
    for (line, (url, range)) in shown.iter().zip(expected) {
        assert!(
            line.starts_with("part ") && line.contains(&**url) && line.ends_with(range),
            "{shown:?}"
        );
    }
    assert_eq!(
        world.lines(&["find", &name, "-copies", "0"]).len(),
        1,
        "a part is no copy"
    );
    world.run(&["replicate", &name, "--to", "sprite"]);
    world.jupiter.kill();
    world.run(&["cp", &name, "again"]);
    assert_eq!(fs::read(world.scratch.join("again")).unwrap(), bytes);
}
