//! Dates as certificates write them.

use crate::{
    Error, Result,
    error::Doing,
    when::{DAY, LAST, seconds},
};
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the moment that a certificate names.
pub(crate) fn moment(time: &Asn1TimeRef) -> Result<SystemTime> {
    let epoch = Asn1Time::from_unix(0).doing("reading a date")?;
    let since = epoch.diff(time).doing("reading a date")?;
    let seconds = i64::from(since.days) * DAY + i64::from(since.secs);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let moment = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    Ok(moment.unwrap_or(UNIX_EPOCH))
}

/// Returns the date as certificates write it, to the second. They have four digits for the year.
pub(crate) fn asn1(time: SystemTime) -> Result<Asn1Time> {
    if seconds(time) > LAST {
        return Err(Error::bad_request(
            "a certificate ends before the year 10000",
        ));
    }
    Asn1Time::from_unix(seconds(time)).doing("writing a date")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::when::{after, utc};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_date_survives_a_certificate() {
        for seconds in [0, 951_782_400, 4_102_444_800] {
            assert_eq!(moment(&asn1(at(seconds)).unwrap()).unwrap(), at(seconds));
        }
    }

    #[test]
    fn no_certificate_outlives_its_four_digits() {
        let last = at(LAST.unsigned_abs());
        assert_eq!(utc(last), "9999-12-31 23:59:59 UTC");
        assert_eq!(moment(&asn1(last).unwrap()).unwrap(), last);
        for too_long in [Duration::from_secs(1), Duration::MAX] {
            assert!(asn1(after(last, too_long)).is_err(), "{too_long:?}");
        }
    }
}
