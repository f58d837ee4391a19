//! From when to when a certificate is good (RFC 5280, 4.1.2.5): no more of it is understood here, and who checks it is
//! somebody else.

use crate::der::{Element, element};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// DER's tags.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate ends, in DER; `None` if it is none.
pub(crate) fn end(certificate: &[u8]) -> Option<Timestamp> {
    span(certificate).map(|(_, end)| end)
}

/// From when to when it is good.
pub(crate) fn span(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let certificate = element(certificate)?;
    let mut fields = element(certificate.content)?.content;
    let first = element(fields)?;
    if first.tag == VERSION {
        fields = first.rest;
    }
    // The serial number, the algorithm, and who signed it.
    for _ in 0..3 {
        fields = element(fields)?.rest;
    }
    let begin = element(element(fields)?.content)?;
    let end = element(begin.rest)?;
    let read = |one: &Element<'_>| time(one.tag, std::str::from_utf8(one.content).ok()?);
    Some((read(&begin)?, read(&end)?))
}

fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let text = match tag {
        // Two digits of a year from 1950 to 2049.
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["pool".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 2, 28);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_ends_when_whoever_made_it_said() {
        for year in [1960, 1999, 2026, 2049, 2050, 4096] {
            let expected = format!("{year}-02-28T00:00:00Z").parse().ok();
            assert_eq!(end(&made(year)), expected, "{year}");
        }
    }

    proptest! {
        #[test]
        fn what_is_no_certificate_ends_never(place: prop::sample::Index, byte: u8) {
            let whole = made(2026);
            prop_assert_eq!(end(&whole[..place.index(whole.len())]), None);
            // Another one, or none: nothing panics.
            let mut other = whole;
            *place.get_mut(&mut other) = byte;
            std::hint::black_box(end(&other));
        }
    }
}
