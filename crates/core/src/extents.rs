//! Which bytes of a file we mean.

use std::{collections::BTreeMap, fmt, ops::Range, str::FromStr};

/// A set of byte offsets, kept as disjoint, non-touching, half-open ranges.
///
/// Restart marker, cache hit, backlog, stripe and view are all this.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Extents(BTreeMap<u64, u64>); // start -> end

impl Extents {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `range`, and merges the ranges that it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Ends grow with starts, so what touches us is a run just below `end`.
        while let Some((&s, &e)) = self.0.range(..=end).next_back()
            && e >= start
        {
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Removes `range`, splitting what straddles it.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..range.end).next_back()
            && e > range.start
        {
            self.0.remove(&s);
            if e > range.end {
                self.0.insert(range.end, e);
            }
            if s < range.start {
                self.0.insert(s, range.start);
                break;
            }
        }
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&s, &e)| s..e)
    }

    /// Returns how many separate ranges there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the offsets in `self` that are not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = self.clone();
        for range in self.iter() {
            other.within(range).for_each(|cut| left.remove(cut));
        }
        left
    }

    /// Returns the offsets in both.
    pub fn and(&self, other: &Self) -> Self {
        let (few, many) = if self.count() < other.count() {
            (self, other)
        } else {
            (other, self)
        };
        few.iter()
            .flat_map(|r| many.within(r).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the offsets in either.
    pub fn or(&self, other: &Self) -> Self {
        let mut both = self.clone();
        other.iter().for_each(|r| both.insert(r));
        both
    }

    /// Returns the parts of the set that lie in `range`, cut to it.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..range.start).next_back().map(|(&s, &e)| s..e);
        let inside = (!range.is_empty())
            .then(|| self.0.range(range.clone()).map(|(&s, &e)| s..e))
            .into_iter()
            .flatten();
        before
            .into_iter()
            .chain(inside)
            .map(move |r| r.start.max(range.start)..r.end.min(range.end))
            .filter(|r| !r.is_empty())
    }

    /// Returns the part of `range` that is not in the set, and so is still to be moved.
    pub fn missing(&self, range: Range<u64>) -> Self {
        let mut left = Self::from(range.clone());
        self.within(range).for_each(|r| left.remove(r));
        left
    }

    /// Tells whether every offset of `range` is in the set.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .0
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, &e)| e >= range.end)
    }

    /// Takes up to `len_bytes` from the front: the next piece of work.
    pub fn take(&mut self, len_bytes: u64) -> Self {
        let mut taken = Self::new();
        let mut left = len_bytes;
        while left > 0
            && let Some((&start, &end)) = self.0.first_key_value()
        {
            let piece = start..end.min(start.saturating_add(left));
            left -= piece.end - piece.start;
            self.remove(piece.clone());
            taken.insert(piece);
        }
        taken
    }

    /// Takes the first piece that does not cross a multiple of `step_bytes`.
    ///
    /// Senders cut files this way, so that a block never straddles two leaves.
    pub fn take_aligned(&mut self, step_bytes: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.0.first_key_value()?;
        let edge = (start / step_bytes + 1).saturating_mul(step_bytes);
        let piece = start..end.min(edge);
        self.remove(piece.clone());
        Some(piece)
    }

    /// Returns how many offsets are in the set.
    pub fn len_bytes(&self) -> u64 {
        self.iter().map(|r| r.end - r.start).sum()
    }

    /// Tells whether no offset is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the end of the last range; 0 for the empty set.
    pub fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, &e)| e)
    }

    /// Returns how many bytes from offset 0 on are there without a gap.
    pub fn prefix(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or(0)
    }
}

impl From<Range<u64>> for Extents {
    fn from(range: Range<u64>) -> Self {
        let mut set = Self::new();
        set.insert(range);
        set
    }
}

impl FromIterator<Range<u64>> for Extents {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|r| set.insert(r));
        set
    }
}

/// Writes the text of a GridFTP restart marker: `0-100,200-300`, ends exclusive.
impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", r.start, r.end)?;
        }
        Ok(())
    }
}

/// The text was no list of ranges.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a list of byte ranges: {0}")]
pub struct BadExtents(&'static str);

/// Reads what `Display` writes. Text comes from peers, so the number of
/// ranges is bounded; an empty part (`0-10,`) is refused as GCT refuses it.
impl FromStr for Extents {
    type Err = BadExtents;

    fn from_str(text: &str) -> Result<Self, BadExtents> {
        let mut set = Self::new();
        for (i, part) in text.split(',').enumerate() {
            if i == RANGES_MAX {
                return Err(BadExtents("too many"));
            }
            let (start, end) = part.trim().split_once('-').ok_or(BadExtents("no dash"))?;
            let start = start
                .trim()
                .parse()
                .map_err(|_| BadExtents("start is no number"))?;
            let end = end
                .trim()
                .parse()
                .map_err(|_| BadExtents("end is no number"))?;
            if start > end {
                return Err(BadExtents("start after end"));
            }
            set.insert(start..end);
        }
        Ok(set)
    }
}

/// More ranges than a peer may send at once. A terabyte that lost every other block of 1 MiB has
/// half a million.
const RANGES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N: u64 = 96;

    fn bits(set: &Extents) -> Vec<bool> {
        (0..N).map(|i| set.contains(&(i..i + 1))).collect()
    }

    fn range() -> impl Strategy<Value = Range<u64>> {
        (0..N, 0..N / 3).prop_map(|(start, len)| start..(start + len).min(N))
    }

    fn set() -> impl Strategy<Value = Extents> {
        prop::collection::vec(range(), 0..8).prop_map(Extents::from_iter)
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(steps in prop::collection::vec((range(), any::<bool>()), 0..60)) {
            let (mut set, mut model) = (Extents::new(), vec![false; N as usize]);
            for (r, on) in steps {
                model[r.start as usize..r.end as usize].fill(on);
                if on { set.insert(r) } else { set.remove(r) }
                prop_assert_eq!(&bits(&set), &model);
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "touching: {ranges:?}");
            }
            prop_assert_eq!(set.len_bytes(), model.iter().filter(|&&b| b).count() as u64);
            prop_assert_eq!(set.prefix(), model.iter().take_while(|&&b| b).count() as u64);
            if !set.is_empty() {
                prop_assert_eq!(set.to_string().parse(), Ok(set));
            }
        }

        #[test]
        fn algebra_agrees_with_bits(a in set(), b in set(), r in range()) {
            let (x, y) = (bits(&a), bits(&b));
            let zip = |f: fn(bool, bool) -> bool| -> Vec<bool> { x.iter().zip(&y).map(|(&p, &q)| f(p, q)).collect() };
            prop_assert_eq!(bits(&a.and(&b)), zip(|p, q| p && q));
            prop_assert_eq!(bits(&a.or(&b)), zip(|p, q| p || q));
            prop_assert_eq!(bits(&a.minus(&b)), zip(|p, q| p && !q));
            let gap = bits(&a.missing(r.clone()));
            for i in 0..N {
                prop_assert_eq!(gap[i as usize], r.contains(&i) && !x[i as usize]);
            }
            prop_assert_eq!(a.contains(&r), r.clone().all(|i| x[i as usize]));
        }

        #[test]
        fn taking_takes_all_in_order(mut a in set(), step in 1..20u64) {
            let (whole, mut taken) = (a.clone(), Extents::new());
            while let Some(piece) = a.take_aligned(step) {
                prop_assert!(piece.start >= taken.end() && piece.start / step == (piece.end - 1) / step);
                taken.insert(piece);
            }
            prop_assert_eq!(&taken, &whole);
            let mut rest = whole.clone();
            let front = rest.take(step);
            prop_assert_eq!(front.len_bytes(), step.min(whole.len_bytes()));
            prop_assert_eq!(front.or(&rest), whole);
        }
    }

    /// Globus clients join 0-10 and 11-20 though servers write half-open
    /// ranges, and so lose byte 10. We must not.
    #[test]
    fn one_byte_hole_stays_a_hole() {
        let set: Extents = "0-10,11-20".parse().unwrap();
        assert_eq!(set.missing(0..20), Extents::from(10..11));
    }

    #[test]
    fn hostile_markers_are_refused() {
        for text in [
            "",
            "0-10,",
            ",",
            "5",
            "-",
            "9-3",
            "a-b",
            "0-99999999999999999999999",
        ] {
            assert!(text.parse::<Extents>().is_err(), "{text:?}");
        }
        let all: Extents = format!("0-{}", u64::MAX).parse().unwrap();
        assert_eq!(all.len_bytes(), u64::MAX);
    }

    #[test]
    fn the_far_end_does_not_overflow() {
        let mut all = Extents::from(u64::MAX - 10..u64::MAX);
        assert_eq!(all.take_aligned(1 << 20), Some(u64::MAX - 10..u64::MAX));
        let mut all = Extents::from(u64::MAX - 10..u64::MAX);
        assert_eq!(all.take(100).len_bytes(), 10);
    }
}
