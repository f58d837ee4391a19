//! The shapes of Redfish's special texts. Whether the day exists is for whoever uses it.

/// `2026-11-21T08:52:00.25+01:00`.
pub(crate) fn is_date_time(text: &str) -> bool {
    let Some((head, tail)) = text.split_at_checked(19) else {
        return false;
    };
    let tail = match tail.strip_prefix('.') {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() == fraction.len() {
                return false;
            }
            rest
        }
        None => tail,
    };
    matches_shape(head, "dddd-dd-ddTdd:dd:dd")
        && (tail == "Z" || matches_shape(tail, "+dd:dd") || matches_shape(tail, "-dd:dd"))
}

/// `P1DT2H30M0.5S`: days, hours, minutes, seconds, at least one of them.
pub(crate) fn is_duration(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let Some(rest) = text.strip_prefix('P') else {
        return false;
    };
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (rest, None),
    };
    let mut parts = 0;
    parts_of(days, "D", &mut parts)
        && time.is_none_or(|time| !time.is_empty() && parts_of(time, "HMS", &mut parts))
        && parts > 0
}

/// Numbers, each followed by one of `units` in their order; only seconds have a fraction.
fn parts_of(mut text: &str, units: &str, parts: &mut usize) -> bool {
    let mut units = units.chars();
    while !text.is_empty() {
        let Some((number, unit)) = text
            .find(|c: char| c.is_ascii_alphabetic())
            .map(|at| text.split_at(at))
        else {
            return false;
        };
        let Some(found) = units.find(|expected| unit.starts_with(*expected)) else {
            return false;
        };
        let fraction = found == 'S' && number.split('.').count() == 2;
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !(digits(number) || fraction && number.split('.').all(digits)) {
            return false;
        }
        *parts += 1;
        text = &unit[1..];
    }
    true
}

/// `6d1cf5b2-0f5a-4b8e-9c3e-0a1b2c3d4e5f`.
pub(crate) fn is_guid(text: &str) -> bool {
    matches_shape(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
}

/// `d` stands for a digit, `x` for a hexadecimal one, anything else for itself.
fn matches_shape(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            b'x' => byte.is_ascii_hexdigit(),
            other => byte == other,
        })
}
