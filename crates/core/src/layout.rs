//! Layout of a file: which home has which bytes, and which bytes must be copied.
//!
//! A replicated file is one fragment with many homes; a Gfarm file many fragments. A partial
//! replica is a fragment that covers a part. One function, [`moves`], plans copy, scatter, gather,
//! re-stripe, replicate and resume. No code here moves a byte or asks a server.

use crate::{Extents, Url};
use std::{collections::BTreeMap, ops::Range, time::Duration};

/// One place that holds (or shall hold) the bytes of a fragment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Home {
    /// The file there.
    pub url: Url,
    /// Offset of the fragment's first byte in that file: 0 for a Gfarm fragment, the start of its
    /// range for a partial replica.
    pub offset_bytes: u64,
    /// State of the home: readable, or not.
    pub state: HomeState,
    /// When its bytes were last compared with the digest, since the Unix epoch.
    pub verified_at: Option<Duration>,
}

impl Home {
    /// Names a home that is whole and begins where the fragment begins.
    pub fn at(url: Url) -> Self {
        Self {
            url,
            offset_bytes: 0,
            state: HomeState::Whole,
            verified_at: None,
        }
    }

    /// Tells whether both put the fragment's bytes at the same place of the same file.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (&self.url, self.offset_bytes) == (&other.url, other.offset_bytes)
    }

    fn advanced(&self, by_bytes: u64) -> Self {
        Self {
            offset_bytes: self.offset_bytes + by_bytes,
            ..self.clone()
        }
    }
}

/// State of a home, which decides its use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HomeState {
    /// All bytes of the fragment are there.
    Whole,
    /// The home is being filled; only the client that fills it knows the progress.
    Filling,
    /// A comparison found other bytes: never read from it, it may be filled again.
    Damaged,
    /// Its server has not been reachable for long.
    Lost,
}

/// A range of a file and its homes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fragment {
    /// Which bytes of the file.
    pub range: Range<u64>,
    /// Homes of the bytes, unsorted.
    pub homes: Vec<Home>,
}

impl Fragment {
    /// Returns the part of the fragment in `range`; the offsets of its homes move along.
    pub fn cut(&self, range: &Range<u64>) -> Option<Self> {
        let part = self.range.start.max(range.start)..self.range.end.min(range.end);
        (!part.is_empty()).then(|| Self {
            homes: self
                .homes
                .iter()
                .map(|home| home.advanced(part.start - self.range.start))
                .collect(),
            range: part,
        })
    }
}

/// The fragments of one version of a file: disjoint, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layout(Vec<Fragment>);

impl Layout {
    /// Puts fragments in order; `None` if two of them overlap. Empty ones vanish.
    pub fn new(fragments: impl IntoIterator<Item = Fragment>) -> Option<Self> {
        let mut fragments: Vec<_> = fragments
            .into_iter()
            .filter(|f| !f.range.is_empty())
            .collect();
        fragments.sort_by_key(|f| f.range.start);
        fragments
            .windows(2)
            .all(|pair| pair[0].range.end <= pair[1].range.start)
            .then_some(Self(fragments))
    }

    /// Cuts fragments that may overlap into disjoint ones: each has the homes of all that cover it, in their order.
    pub fn overlaid(parts: impl IntoIterator<Item = Fragment>) -> Self {
        let parts: Vec<_> = parts.into_iter().collect();
        let mut edges: Vec<u64> = parts
            .iter()
            .flat_map(|part| [part.range.start, part.range.end])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let piece = |pair: &[u64]| {
            let range = pair[0]..pair[1];
            let cut = parts.iter().filter_map(|part| part.cut(&range));
            let homes: Vec<_> = cut.flat_map(|part| part.homes).collect();
            (!homes.is_empty()).then_some(Fragment { range, homes })
        };
        Self(edges.windows(2).filter_map(piece).collect())
    }

    /// Returns the layout of a file of `size` bytes with whole copies.
    pub fn whole(size: u64, homes: impl IntoIterator<Item = Home>) -> Self {
        let homes = homes.into_iter().collect();
        let range = 0..size;
        Self::new([Fragment { range, homes }]).expect("one fragment cannot overlap another")
    }

    /// Returns the fragments.
    pub fn fragments(&self) -> &[Fragment] {
        &self.0
    }

    /// Returns the fragments that a read of `range` must visit, cut to it.
    pub fn cut(&self, range: Range<u64>) -> impl Iterator<Item = Fragment> + '_ {
        let first = self.0.partition_point(|f| f.range.end <= range.start);
        self.0[first..]
            .iter()
            .map_while(move |fragment| fragment.cut(&range))
    }

    /// Returns the bytes that a whole home has. Other bytes read as an error, not as zeros.
    pub fn filled(&self) -> Extents {
        let is_whole = |f: &&Fragment| f.homes.iter().any(|h| h.state == HomeState::Whole);
        self.0
            .iter()
            .filter(is_whole)
            .map(|f| f.range.clone())
            .collect()
    }
}

/// One piece of work for the transfer engine. The homes begin at the range's start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// Which bytes of the file.
    pub range: Range<u64>,
    /// Homes to read from: any of these, all of them whole.
    pub from: Vec<Home>,
    /// Homes to copy to: all of these.
    pub to: Vec<Home>,
}

/// Bytes that are wanted and that no home has.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no home holds bytes {0}")]
pub struct Unfilled(pub Extents);

/// Returns the copies that give every home of `target` the bytes of `source`, in ascending order.
/// Bytes in `done` are left out.
///
/// `done` tells the ranges that the file behind a URL already holds, in offsets of the *whole*
/// file. A whole home of the source is not filled again.
pub fn moves(
    source: &Layout,
    target: &Layout,
    done: &BTreeMap<Url, Extents>,
) -> Result<Vec<Move>, Unfilled> {
    let mut moves: Vec<Move> = Vec::new();
    let mut unfilled = Extents::new();
    for goal in target.fragments() {
        let wants: Vec<_> = goal
            .homes
            .iter()
            .map(|home| (home, owed(source, goal, home, done)))
            .collect();
        for range in edges(&wants) {
            let takers = wants.iter().filter(|(_, owed)| owed.contains(&range));
            let to: Vec<_> = takers
                .map(|(home, _)| home.advanced(range.start - goal.range.start))
                .collect();
            if to.is_empty() {
                continue;
            }
            unfilled = unfilled.or(&source.filled().missing(range.clone()));
            for piece in source.cut(range.clone()) {
                let mut from = piece.homes;
                from.retain(|home| home.state == HomeState::Whole);
                let to = to
                    .iter()
                    .map(|home| home.advanced(piece.range.start - range.start))
                    .collect();
                let range = piece.range;
                moves.push(Move { range, from, to });
            }
        }
    }
    if unfilled.is_empty() {
        Ok(moves)
    } else {
        Err(Unfilled(unfilled))
    }
}

/// Returns the ranges that one home of a goal still needs.
fn owed(source: &Layout, goal: &Fragment, home: &Home, done: &BTreeMap<Url, Extents>) -> Extents {
    let mut owed = match done.get(&home.url) {
        Some(done) => done.missing(goal.range.clone()),
        None => Extents::from(goal.range.clone()),
    };
    for held in source.cut(goal.range.clone()) {
        let here = home.advanced(held.range.start - goal.range.start);
        let has = |h: &Home| h.state == HomeState::Whole && h.is_same_place(&here);
        if held.homes.iter().any(has) {
            owed.remove(held.range);
        }
    }
    owed
}

/// Divides the union of all needs so that within one range the same homes are in need.
fn edges(wants: &[(&Home, Extents)]) -> Vec<Range<u64>> {
    let mut edges: Vec<u64> = wants
        .iter()
        .flat_map(|(_, owed)| owed.iter())
        .flat_map(|r| [r.start, r.end])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Measurements of a server. `None`: never measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Weather {
    /// Bytes a second, lately.
    pub rate_bytes: Option<u64>,
    /// How long an answer takes.
    pub round_trip: Option<Duration>,
    /// Passing faults lately.
    pub faults: u32,
}

impl Weather {
    /// Guesses how long `len_bytes` take. Each fault doubles it: half of the
    /// attempts are assumed to be lost.
    pub fn cost(&self, len_bytes: u64) -> f64 {
        let rate = self.rate_bytes.unwrap_or(RATE_UNKNOWN_BYTES).max(1);
        let round_trip = self.round_trip.unwrap_or(ROUND_TRIP_UNKNOWN);
        let once = ROUND_TRIPS * round_trip.as_secs_f64() + len_bytes as f64 / rate as f64;
        once * 2f64.powi(self.faults.min(FAULTS_MAX) as i32)
    }
}

/// Estimate for a server never measured: worth a try before a bad server, not before a good one.
const RATE_UNKNOWN_BYTES: u64 = 20_000_000;
const ROUND_TRIP_UNKNOWN: Duration = Duration::from_millis(50);

/// Connect, greet, log in, open a data channel, ask.
const ROUND_TRIPS: f64 = 6.0;

const FAULTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn home(name: &str, offset_bytes: u64) -> Home {
        Home {
            offset_bytes,
            ..Home::at(format!("ftp://{name}/f").parse().unwrap())
        }
    }

    fn fragment(range: Range<u64>, homes: &[&str]) -> Fragment {
        let homes = homes.iter().map(|name| home(name, 0)).collect();
        Fragment { range, homes }
    }

    #[test]
    fn overlapping_fragments_become_disjoint() {
        let parts = [
            fragment(10..30, &["a"]),
            fragment(0..20, &["b"]),
            fragment(40..50, &["c"]),
            fragment(10..30, &["d"]),
        ];
        let layout = Layout::overlaid(parts);
        let shown: Vec<_> = layout
            .fragments()
            .iter()
            .map(|fragment| {
                let homes = fragment.homes.iter();
                let homes =
                    homes.map(|home| format!("{}+{}", home.url.host().unwrap(), home.offset_bytes));
                (fragment.range.clone(), homes.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expected = [
            (0..10, "b+0"),
            (10..20, "a+0 b+10 d+0"),
            (20..30, "a+10 d+10"),
            (40..50, "c+0"),
        ];
        assert_eq!(
            shown,
            expected.map(|(range, homes)| (range, homes.to_owned()))
        );
        assert_eq!(Layout::new(layout.fragments().to_vec()), Some(layout));
    }

    fn layout(parts: &[(Range<u64>, &[&str])]) -> Layout {
        let fragments = parts.iter().map(|(r, homes)| fragment(r.clone(), homes));
        Layout::new(fragments).unwrap()
    }

    fn ranges(moves: Result<Vec<Move>, Unfilled>) -> Vec<Range<u64>> {
        moves.unwrap().into_iter().map(|m| m.range).collect()
    }

    fn names(homes: &[Home]) -> Vec<String> {
        homes.iter().map(|h| h.url.host_port()).collect()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one range is meant
    fn one_planner_covers_every_kind_of_copy() {
        let none = BTreeMap::new();
        let some = BTreeMap::from([(home("home", 0).url, Extents::from(0..60))]);
        let whole = layout(&[(0..100, &["home"])]);
        let farm = layout(&[(0..40, &["a"]), (40..100, &["b"])]);
        let stripes = layout(&[(0..50, &["x"]), (50..100, &["y"])]);
        assert_eq!(ranges(moves(&whole, &stripes, &none)), [0..50, 50..100]); // scatter
        assert_eq!(ranges(moves(&farm, &whole, &none)), [0..40, 40..100]); // gather
        assert_eq!(
            ranges(moves(&farm, &stripes, &none)),
            [0..40, 40..50, 50..100]
        ); // re-stripe
        assert_eq!(ranges(moves(&farm, &whole, &some)), [60..100]); // resume
        let twice = layout(&[(0..40, &["a", "c"]), (40..100, &["b", "d"])]);
        let copies = moves(&farm, &twice, &none).unwrap(); // only new homes are fed
        assert_eq!(
            copies.iter().map(|m| names(&m.to)).collect::<Vec<_>>(),
            [["c"], ["d"]]
        );
        assert_eq!(moves(&farm, &farm, &none), Ok(vec![]));
    }

    #[test]
    fn each_target_has_its_own_done() {
        let source = layout(&[(0..100, &["s"])]);
        let target = layout(&[(0..100, &["x", "y"])]);
        let done = BTreeMap::from([
            (home("x", 0).url, Extents::from(0..60)),
            (home("y", 0).url, Extents::from(30..40)),
        ]);
        let plan: Vec<_> = moves(&source, &target, &done)
            .unwrap()
            .into_iter()
            .map(|m| (m.range, names(&m.to)))
            .collect();
        let to = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(
            plan,
            [
                (0..30, to(&["y"])),
                (40..60, to(&["y"])),
                (60..100, to(&["x", "y"]))
            ]
        );
    }

    #[test]
    fn same_file_other_offset_is_another_home() {
        let source = layout(&[(0..40, &["a"]), (40..100, &["b"])]); // a file from 0 each
        let partial = Layout::new([Fragment {
            range: 40..100,
            homes: vec![home("b", 40)],
        }]);
        let plan = moves(&source, &partial.unwrap(), &BTreeMap::new()).unwrap();
        assert_eq!(
            (plan[0].from[0].offset_bytes, plan[0].to[0].offset_bytes),
            (0, 40)
        );
    }

    #[test]
    fn bytes_without_home_are_an_error() {
        let mut source = layout(&[(0..40, &["a"]), (50..60, &["b"]), (60..100, &["c"])]);
        source.0[2].homes[0].state = HomeState::Damaged;
        let target = layout(&[(0..80, &["t"])]);
        let unfilled = moves(&source, &target, &BTreeMap::new()).unwrap_err();
        assert_eq!(unfilled.to_string(), "no home holds bytes 40-50,60-80");
        let done = BTreeMap::from([(home("t", 0).url, "40-50,60-80".parse().unwrap())]);
        assert_eq!(ranges(moves(&source, &target, &done)), [0..40, 50..60]);
    }

    #[test]
    fn a_damaged_copy_is_filled_again() {
        let mut source = layout(&[(0..10, &["good", "bad"])]);
        source.0[0].homes[1].state = HomeState::Damaged;
        let plan = moves(&source, &source, &BTreeMap::new()).unwrap();
        assert_eq!(
            (names(&plan[0].from), names(&plan[0].to)),
            (vec!["good".into()], vec!["bad".into()])
        );
    }

    #[test]
    fn overlapping_fragments_are_no_layout() {
        assert_eq!(
            Layout::new([fragment(0..5, &[]), fragment(4..6, &[])]),
            None
        );
        let sorted = Layout::new([
            fragment(5..6, &[]),
            fragment(3..3, &[]),
            fragment(0..5, &[]),
        ]);
        assert_eq!(sorted.unwrap().fragments().len(), 2);
    }

    const MB: u64 = 1_000_000;

    fn good(rate_bytes: u64) -> Weather {
        Weather {
            rate_bytes: Some(rate_bytes),
            round_trip: Some(Duration::from_millis(10)),
            faults: 0,
        }
    }

    #[test]
    fn fast_near_and_faultless_ways_cost_least() {
        let far = Weather {
            round_trip: Some(Duration::from_secs(1)),
            ..good(500 * MB)
        };
        let torn = Weather {
            faults: 3,
            ..good(200 * MB)
        };
        let (near, slow, new) = (good(100 * MB), good(MB), Weather::default());
        let costs = |bytes: u64| [far, near, torn, new, slow].map(|way| way.cost(bytes));
        assert!(costs(100_000 * MB).is_sorted(), "{:?}", costs(100_000 * MB));
        // Of a small file only the way counts.
        let small = costs(1000);
        assert!(small.iter().all(|cost| small[1] <= *cost), "{small:?}");
        assert!(new.cost(MB) < good(1000).cost(MB));
    }

    /// The dumbest model: files as byte arrays, the content of offset i is i + 1.
    type ModelFiles = BTreeMap<Url, Vec<u8>>;
    const N: u64 = 48;

    fn write(disk: &mut ModelFiles, home: &Home, bytes: &[u8]) {
        let file = disk.entry(home.url.clone()).or_default();
        let (start, end) = (
            home.offset_bytes as usize,
            home.offset_bytes as usize + bytes.len(),
        );
        file.resize(file.len().max(end), 0);
        file[start..end].copy_from_slice(bytes);
    }

    fn read(disk: &ModelFiles, home: &Home, len: u64) -> Vec<u8> {
        let start = home.offset_bytes as usize;
        disk[&home.url][start..start + len as usize].to_vec()
    }

    fn truth(range: &Range<u64>) -> Vec<u8> {
        range.clone().map(|i| i as u8 + 1).collect()
    }

    /// Fragments that cover 0..N, on homes called by `names` and a number.
    fn covering(names: &'static [&'static str]) -> impl Strategy<Value = Layout> {
        let homes = prop::collection::btree_map(prop::sample::select(names), 0..9u64, 1..4);
        prop::collection::vec((1..N / 2, homes), 1..6).prop_map(|parts| {
            let (mut fragments, mut at, count) = (Vec::new(), 0, parts.len());
            for (i, (len, homes)) in parts.into_iter().enumerate() {
                let end = if i + 1 == count { N } else { (at + len).min(N) };
                // Each fragment's home is a file of its own, except those called "p…", partial replicas.
                let homes = homes
                    .into_iter()
                    .map(|(name, skip)| match name.starts_with('p') {
                        true => home(name, at),
                        false => home(&format!("{name}-{at}-{end}"), skip),
                    });
                fragments.push(Fragment {
                    range: at..end,
                    homes: homes.collect(),
                });
                at = end;
            }
            Layout::new(fragments).unwrap()
        })
    }

    proptest! {
        #[test]
        fn moves_make_target_whole_without_repeats(
            source in covering(&["p1", "p2", "a", "b"]),
            target in covering(&["p1", "p3", "a", "c"]),
            some in prop::collection::vec((any::<prop::sample::Index>(), 0..N, 0..N), 0..5),
        ) {
            let mut disk = ModelFiles::new();
            for f in source.fragments() {
                f.homes.iter().for_each(|h| write(&mut disk, h, &truth(&f.range)));
            }
            // Some was done before; those bytes are marked, to see that they are not written again.
            let mut done: BTreeMap<Url, Extents> = BTreeMap::new();
            let before = disk.clone();
            for (which, start, len) in some {
                let f = &target.fragments()[which.index(target.fragments().len())];
                let home = &f.homes[which.index(f.homes.len())];
                if let Some(part) = f.cut(&(start..start + len)) && !before.contains_key(&home.url) {
                    let here = home.advanced(part.range.start - f.range.start);
                    write(&mut disk, &here, &truth(&part.range));
                    done.entry(home.url.clone()).or_default().insert(part.range);
                }
            }
            let held = disk.clone();
            let mut written: BTreeMap<Url, Extents> = BTreeMap::new();
            for m in moves(&source, &target, &done).unwrap() {
                let len = m.range.end - m.range.start;
                for from in &m.from {
                    prop_assert_eq!(read(&held, from, len), truth(&m.range));
                }
                for to in &m.to {
                    let twice = written.entry(to.url.clone()).or_default();
                    prop_assert_eq!(twice.missing(m.range.clone()), Extents::from(m.range.clone()));
                    twice.insert(m.range.clone());
                    let had = done.get(&to.url).map_or(0, |d| d.within(m.range.clone()).count());
                    prop_assert_eq!(had, 0, "done moves again");
                    prop_assert!(m.from.iter().all(|from| !from.is_same_place(to)), "fed itself");
                    write(&mut disk, to, &truth(&m.range));
                }
            }
            for f in target.fragments() {
                for h in &f.homes {
                    prop_assert_eq!(read(&disk, h, f.range.end - f.range.start), truth(&f.range));
                }
            }
        }
    }
}
