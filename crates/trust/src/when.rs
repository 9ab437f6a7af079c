//! Points in time, for people and for comparing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns when something ends that lives for so long; a date that no certificate has, if it
/// is too long for that.
pub(crate) fn after(now: SystemTime, lifetime: Duration) -> SystemTime {
    let never = UNIX_EPOCH + Duration::from_secs(LAST.unsigned_abs() + 1);
    now.checked_add(lifetime).unwrap_or(never)
}

/// Returns `2026-11-21 16:48:17 UTC`.
pub(crate) fn utc(time: SystemTime) -> String {
    let seconds = seconds(time);
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// Returns how far two moments are apart, in the unit that people would choose; `ago` if past.
pub(crate) fn apart(now: SystemTime, then: SystemTime) -> String {
    let (distance, past) = match now.duration_since(then) {
        Ok(distance) => (distance, true),
        Err(ahead) => (ahead.duration(), false),
    };
    let seconds = distance.as_secs();
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7199 => (seconds / 60, "minute"),
        7200..=172_799 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    let ago = if past { " ago" } else { "" };
    format!("{count} {unit}{plural}{ago}")
}

pub(crate) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
    }
}

/// Days since 1970 to a date (Gregorian, as Howard Hinnant's `civil_from_days` counts eras).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

pub(crate) const DAY: i64 = 86_400;
/// The last second that a certificate can name: 9999-12-31 23:59:59.
pub(crate) const LAST: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(at(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(at(951_782_400)), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(at(1_795_279_697)), "2026-11-21 16:48:17 UTC");
    }

    #[test]
    fn distances_read_as_people_say_them() {
        assert_eq!(apart(at(100_000), at(89_000)), "3 hours ago");
        assert_eq!(apart(at(100), at(99)), "1 second ago");
        assert_eq!(apart(at(0), at(86_400 * 3)), "3 days");
    }
}
