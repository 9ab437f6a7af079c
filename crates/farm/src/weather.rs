//! Chooses the copy that is read first, by recent transfers between two sites.

use crate::now;
use godwit_catalog::{Catalog, CatalogAnswer, CatalogHome, Change, Location, Measured, Question};
use godwit_core::Weather;
use godwit_wire::door::call::Name;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// The measurements of the ways between sites.
#[derive(Default)]
pub(crate) struct Sky {
    /// By who read and who sent, the latest last.
    samples: HashMap<(String, String), Vec<Measured>>,
    /// How long a location takes to its first byte, in seconds, as its attribute `latency` says.
    latency_s: HashMap<u64, f64>,
}

/// The cost of reading one copy.
#[derive(Clone, Debug)]
pub struct ReadCost {
    /// The time it is expected to take, in seconds.
    pub seconds: f64,
    /// The reason, for people.
    pub why: String,
}

impl Sky {
    /// Notes one transfer.
    pub(crate) fn add(&mut self, measured: Measured) {
        let pair = (measured.to.clone(), measured.from.clone());
        self.samples.entry(pair).or_default().push(measured);
    }

    fn of(&self, to: &str, from: &str) -> &[Measured] {
        let pair = (to.to_owned(), from.to_owned());
        self.samples.get(&pair).map_or(&[], Vec::as_slice)
    }

    /// Returns the cost of a read of `bytes`.
    pub(crate) fn cost(&self, to: &str, (from, location): (&str, u64), bytes: u64) -> ReadCost {
        let all = self.of(to, from);
        let distance = |sample: &&Measured| class(sample.bytes).abs_diff(class(bytes));
        let done = || all.iter().rev().filter(|sample| !sample.fault);
        let nearest = done().map(|sample| distance(&sample)).min();
        let like = done().filter(|sample| Some(distance(sample)) == nearest);
        let mut rates: Vec<u64> = like.take(SAMPLES).map(rate).collect();
        rates.sort_unstable();
        let lately = |sample: &&Measured| now().as_secs().saturating_sub(sample.at_s) < LATELY_S;
        let last = all.iter().rev().take(SAMPLES).filter(lately);
        let faults = last.filter(|sample| sample.fault).count();
        let weather = Weather {
            rate_bytes: rates.get(rates.len() / 2).copied(),
            // The measured time includes the round trip.
            round_trip: (!rates.is_empty()).then_some(Duration::ZERO),
            faults: u32::try_from(faults).unwrap_or(u32::MAX),
        };
        let latency = self.latency_s.get(&location).copied().unwrap_or(0.0);
        let mut why = match weather.rate_bytes {
            Some(rate) => format!(
                "median of {} transfers: {:.1} MB/s",
                rates.len(),
                rate as f64 / 1e6
            ),
            None => format!("never measured from {from} to {to}"),
        };
        if faults > 0 {
            why.push_str(&format!("; {faults} faults lately"));
        }
        if latency > 0.0 {
            why.push_str(&format!("; {latency} s until the first byte"));
        }
        ReadCost {
            seconds: latency + weather.cost(bytes),
            why,
        }
    }

    /// Returns homes with the cost of reading `bytes` from each, the best first. Equal costs are decided in favour of the
    /// home that was compared last, then by URL.
    pub(crate) fn ranked<'a>(
        &self,
        homes: impl Iterator<Item = &'a CatalogHome>,
        (to, bytes): (&str, u64),
    ) -> Vec<(&'a CatalogHome, ReadCost)> {
        let cost =
            |home: &'a CatalogHome| (home, self.cost(to, (&home.site, home.location), bytes));
        let mut ranked: Vec<_> = homes.map(cost).collect();
        ranked.sort_by(|(a, a_cost), (b, b_cost)| {
            let by_cost = a_cost.seconds.total_cmp(&b_cost.seconds);
            by_cost
                .then_with(|| b.verified_s.cmp(&a.verified_s))
                .then_with(|| a.url.cmp(&b.url))
        });
        ranked
    }

    /// Returns the homes in the order of attempts. Now and then, as `chance` decides, the home whose last sample is oldest
    /// is first: a slow one may have become fast.
    pub(crate) fn order<'a>(
        &self,
        homes: impl Iterator<Item = &'a CatalogHome>,
        (to, bytes): (&str, u64),
        chance: u64,
    ) -> Vec<&'a CatalogHome> {
        let mut ranked = self.ranked(homes, (to, bytes));
        let is_new = |home: &CatalogHome| self.of(to, &home.site).is_empty();
        let is_due = |at: &usize| {
            let ((best, least), (home, cost)) = (&ranked[0], &ranked[*at]);
            match is_new(home) {
                // Where no way was measured, the first is as good as any other.
                true => chance.is_multiple_of(NEW_ONE_OF) && !is_new(best),
                // One that is far slower is not worth it.
                false => {
                    let is_near = cost.seconds <= least.seconds * WORTH_A_TRY;
                    is_near && chance.is_multiple_of(TRIED_ONE_OF)
                }
            }
        };
        let seen_at = |at: &usize| {
            self.of(to, &ranked[*at].0.site)
                .last()
                .map_or(0, |last| last.at_s)
        };
        if let Some(at) = (1..ranked.len()).filter(is_due).min_by_key(seen_at) {
            let tried = ranked.remove(at);
            ranked.insert(0, tried);
        }
        ranked.into_iter().map(|(home, _)| home).collect()
    }
}

/// Sizes of one class take times that can be compared.
fn class(bytes: u64) -> u32 {
    bytes.max(1).ilog2() / 4
}

fn rate(sample: &Measured) -> u64 {
    // Of the smallest files the time counts, not the bytes.
    (sample.bytes.max(1) * 1000 / sample.took_ms.max(1)).max(1)
}

/// The sky as the catalog knows it, and what this process has measured.
pub(crate) struct SkyWatch {
    catalog: Arc<dyn Catalog>,
    /// The site of this process.
    pub(crate) here: String,
    seen: Mutex<Option<(Instant, Arc<Sky>)>>,
    /// Measurements that are not noted yet.
    fresh: Mutex<Vec<Measured>>,
}

impl SkyWatch {
    /// Returns one that has measured nothing.
    pub(crate) fn new(catalog: Arc<dyn Catalog>) -> Self {
        Self {
            catalog,
            here: godwit_sys::host_name().unwrap_or_else(|| "localhost".into()),
            seen: Mutex::default(),
            fresh: Mutex::default(),
        }
    }

    /// Returns the recent samples. If the catalog does not answer, they are those of this process.
    pub(crate) fn sky(&self) -> Arc<Sky> {
        let mut seen = self.seen.lock();
        if let Some((at, sky)) = &*seen
            && at.elapsed() < SEEN_FOR
        {
            return sky.clone();
        }
        let mut sky = Sky::default();
        let name = Name(Path::new("").into());
        let locations = Question::Locations { name, count: false };
        for question in [Question::Weather {}, locations] {
            let asked = self.catalog.ask(&question, &mut |answer| {
                match answer {
                    CatalogAnswer::Weather(measured) => sky.add(measured),
                    CatalogAnswer::Location(location) => sky.latency_s.extend(latency(&location)),
                    _ => {}
                }
                Ok(())
            });
            if let Err(refusal) = asked {
                tracing::debug!(why = refusal.said, "nothing is known of the ways to sites");
            }
        }
        self.fresh
            .lock()
            .iter()
            .for_each(|measured| sky.add(measured.clone()));
        let sky = Arc::new(sky);
        *seen = Some((Instant::now(), sky.clone()));
        sky
    }

    /// Returns homes in the order in which they are tried.
    pub(crate) fn order<'a>(
        &self,
        homes: impl Iterator<Item = &'a CatalogHome>,
        bytes: u64,
    ) -> Vec<&'a CatalogHome> {
        let chance = u64::from(now().subsec_micros());
        self.sky().order(homes, (&self.here, bytes), chance)
    }

    /// Notes the time of a read. The catalog receives the measurements now and then, and at the
    /// end.
    pub(crate) fn measured(&self, from: &str, bytes: u64, took: Duration, fault: bool) {
        let measured = self.sample(&self.here, from, (bytes, took), fault);
        let due = {
            let mut fresh = self.fresh.lock();
            fresh.push(measured);
            (fresh.len() >= NOTED_AT).then(|| std::mem::take(&mut *fresh))
        };
        // Without the lock: a reader of the samples takes it while it holds the one that `note` takes.
        if let Some(due) = due {
            self.note(due);
        }
    }

    /// Returns the sample of one transfer.
    pub(crate) fn sample(
        &self,
        to: &str,
        from: &str,
        (bytes, took): (u64, Duration),
        fault: bool,
    ) -> Measured {
        Measured {
            to: to.into(),
            from: from.into(),
            bytes,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            fault,
            at_s: now().as_secs(),
        }
    }

    /// Sends samples to the catalog. If it refuses them, they are dropped.
    fn note(&self, fresh: Vec<Measured>) {
        // A few of each way say as much as all.
        let mut few: HashMap<(String, u32, bool), u32> = HashMap::new();
        let changes: Vec<_> = fresh
            .into_iter()
            .rev()
            .filter(|one| {
                let key = (one.from.clone(), class(one.bytes), one.fault);
                let count = few.entry(key).or_default();
                *count += 1;
                *count <= FEW
            })
            .map(Change::Measured)
            .collect();
        if let Err(refusal) = self.catalog.change(&changes.into()) {
            tracing::debug!(why = refusal.said, "what transfers took is not noted");
        }
        *self.seen.lock() = None;
    }
}

impl Drop for SkyWatch {
    fn drop(&mut self) {
        let fresh = std::mem::take(&mut *self.fresh.lock());
        if !fresh.is_empty() {
            self.note(fresh);
        }
    }
}

fn latency(location: &Location) -> Option<(u64, f64)> {
    let latency: f64 = location.attributes.get("latency")?.parse().ok()?;
    (latency.is_finite() && latency > 0.0).then_some((location.location, latency))
}

/// How many transfers of a way count.
const SAMPLES: usize = 7;
/// How long a fault counts.
const LATELY_S: u64 = 600;
/// One of this many reads uses the copy whose last sample is oldest.
const TRIED_ONE_OF: u64 = 32;
/// One of this many reads uses a copy that was never read.
const NEW_ONE_OF: u64 = 4;
/// A copy that is this many times slower than the best is not tried.
const WORTH_A_TRY: f64 = 3.0;
/// How long what the catalog knows is used.
const SEEN_FOR: Duration = Duration::from_secs(30);
/// How many transfers are kept before the catalog receives them.
const NOTED_AT: usize = 256;
/// How many transfers of one way and size are noted at once.
const FEW: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_catalog::{Changes, Each, HomeWord};
    use std::sync::{
        OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    /// Numbers that look random, the same for each seed.
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / (1_u64 << 31) as f64
        }

        /// Returns a factor around 1.
        fn factor(&mut self, spread: f64) -> f64 {
            let sum: f64 = (0..6).map(|_| self.next()).sum();
            ((sum - 3.0) * spread).exp()
        }
    }

    /// A catalog that is told of samples while no lock over them may be held.
    #[derive(Default)]
    struct Unlocked {
        watching: OnceLock<Weak<SkyWatch>>,
        told: AtomicU64,
    }

    impl Catalog for Unlocked {
        fn ask(&self, _: &Question, _: &mut Each<'_>) -> godwit_catalog::Result<()> {
            Ok(())
        }

        fn change(&self, _: &Changes) -> godwit_catalog::Result<Vec<u64>> {
            if let Some(watching) = self.watching.get().and_then(Weak::upgrade) {
                assert!(watching.fresh.try_lock().is_some(), "its lock is held");
                self.told.fetch_add(1, Relaxed);
            }
            Ok(Vec::new())
        }
    }

    /// A reader of the samples takes the lock of the new ones while it holds another that the writer takes.
    #[test]
    fn noting_samples_holds_no_lock() {
        let catalog = Arc::new(Unlocked::default());
        let watching = Arc::new(SkyWatch::new(catalog.clone()));
        catalog.watching.set(Arc::downgrade(&watching)).unwrap();
        for _ in 0..NOTED_AT {
            watching.measured("far", 1 << 20, Duration::from_millis(9), false);
        }
        assert_eq!(catalog.told.load(Relaxed), 1);
    }

    fn home(site: usize) -> CatalogHome {
        CatalogHome {
            location: site as u64,
            site: format!("s{site}"),
            url: format!("ftp://s{site}/f"),
            state: HomeWord(godwit_core::HomeState::Whole),
            ..CatalogHome::default()
        }
    }

    fn sample(from: &str, bytes: u64, seconds: f64, fault: bool) -> Measured {
        Measured {
            to: "here".into(),
            from: from.into(),
            bytes,
            took_ms: (seconds * 1000.0) as u64,
            fault,
            at_s: now().as_secs(),
        }
    }

    fn first(sky: &Sky, homes: &[CatalogHome], bytes: u64, chance: u64) -> usize {
        sky.order(homes.iter(), ("here", bytes), chance)[0].location as usize
    }

    /// Links whose rates change, with noise, and now and then a transfer that hangs for a while.
    struct TestLinks {
        rates: Vec<f64>,
        dice: Dice,
    }

    impl TestLinks {
        fn new(seed: u64) -> Self {
            let mut dice = Dice(seed);
            let rates = (0..4).map(|_| 2e7 * dice.factor(1.2)).collect();
            Self { rates, dice }
        }

        /// Returns what all links would take now: the policies are compared on the same ones.
        fn times(&mut self, bytes: u64) -> Vec<f64> {
            if self.dice.next() < 0.02 {
                let at = (self.dice.next() * 4.0) as usize;
                self.rates[at] = 2e7 * self.dice.factor(1.2);
            }
            let rates = self.rates.clone();
            let mut time = |rate: &f64| {
                let hangs = if self.dice.next() < 0.05 { 10.0 } else { 1.0 };
                0.05 + hangs * bytes as f64 / (rate * self.dice.factor(0.5))
            };
            rates.iter().map(&mut time).collect()
        }
    }

    #[test] //= REPLICAS-24
    fn median_beats_round_robin_and_last() {
        let homes: Vec<_> = (0..4).map(home).collect();
        let (mut beats_turns, mut beats_last) = (0, 0);
        for seed in 0..50 {
            let (mut links, mut sky) = (TestLinks::new(seed), Sky::default());
            let mut last = [0.0_f64; 4];
            let (mut ours, mut by_turns, mut by_last) = (0.0, 0.0, 0.0);
            for nth in 0..400_usize {
                let bytes = (5e6 * links.dice.factor(0.5)) as u64;
                let times = links.times(bytes);
                let chance = (links.dice.next() * 1e6) as u64;
                let at = first(&sky, &homes, bytes, chance);
                ours += times[at];
                sky.add(sample(&homes[at].site, bytes, times[at], false));
                by_turns += times[nth % 4];
                // The one whose last transfer was the fastest; each is tried once.
                let at = (0..4)
                    .min_by(|&a, &b| last[a].total_cmp(&last[b]))
                    .unwrap_or(0);
                by_last += times[at];
                last[at] = times[at] / bytes as f64;
            }
            beats_turns += usize::from(ours < by_turns);
            beats_last += usize::from(ours < by_last);
        }
        assert!(
            beats_turns >= 48,
            "better than round-robin in {beats_turns} of 50"
        );
        assert!(
            beats_last >= 40,
            "better than the last value in {beats_last} of 50"
        );
    }

    #[test] //= REPLICAS-24
    fn tape_and_faults_cost() {
        let homes: Vec<_> = (0..3).map(home).collect();
        let mut sky = Sky::default();
        for site in ["s0", "s1", "s2"] {
            sky.add(sample(site, 1_000_000, 1.0, false));
        }
        sky.latency_s.insert(0, 90.0);
        sky.add(sample("s1", 1_000_000, 1.0, true));
        assert_eq!(first(&sky, &homes, 1_000_000, 1), 2);
        let cost = |at: usize| sky.cost("here", (&homes[at].site, at as u64), 1_000_000);
        assert!((cost(0).seconds - 91.0).abs() < 0.1 && (cost(1).seconds - 2.0).abs() < 0.1);
        assert!(
            cost(0).why.contains("90 s until the first byte"),
            "{}",
            cost(0).why
        );
        assert!(cost(1).why.contains("1 faults lately"), "{}", cost(1).why);
    }

    #[test]
    fn unknown_copy_is_tried_now_and_then() {
        let homes: Vec<_> = (0..2).map(home).collect();
        let mut sky = Sky::default();
        sky.add(sample("s0", 1_000_000, 0.01, false));
        let tried = (0..160)
            .filter(|&chance| first(&sky, &homes, 1_000_000, chance) == 1)
            .count();
        assert_eq!(tried, 40);
        sky.add(sample("s1", 1_000_000, 0.02, false));
        let tried = (0..160)
            .filter(|&chance| first(&sky, &homes, 1_000_000, chance) == 1)
            .count();
        assert_eq!(tried, 160 / TRIED_ONE_OF as usize);
    }
}
