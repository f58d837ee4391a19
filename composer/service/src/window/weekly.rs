//! Ranges of the week as people write them, such as `MON-FRI 20:00-07:30`: turned into pairs of cron expressions, one for
//! each day, so that there is one rule for daylight saving.

use super::WindowError;

const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
const MINUTES_A_DAY: u32 = 24 * 60;
const MINUTES_A_WEEK: u32 = 7 * MINUTES_A_DAY;

/// Minutes of a week that begins on Monday at 00:00; the end may lie in the next week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub start: u32,
    pub end: u32,
}

impl Range {
    /// Cron expressions of its opening and its closing.
    pub fn cron(self) -> (String, String) {
        (cron_of(self.start), cron_of(self.end % MINUTES_A_WEEK))
    }

    /// Whether both have a moment of the week.
    fn overlaps(self, other: Self) -> bool {
        let shifted = |by: u32| Self {
            start: other.start + by,
            end: other.end + by,
        };
        let meets = |a: Self, b: Self| a.start < b.end && b.start < a.end;
        let next_week = Self {
            start: self.start + MINUTES_A_WEEK,
            end: self.end + MINUTES_A_WEEK,
        };
        meets(self, shifted(0)) || meets(self, shifted(MINUTES_A_WEEK)) || meets(next_week, shifted(0))
    }
}

fn cron_of(minute: u32) -> String {
    let day = DAYS[(minute / MINUTES_A_DAY) as usize];
    let (hour, minute) = (minute % MINUTES_A_DAY / 60, minute % 60);
    format!("{minute} {hour} * * {day}")
}

/// The ranges that the lines name, one for each day.
///
/// # Errors
/// The first line that can't be understood, or that names a time which another one names.
pub(super) fn parse(lines: &[String]) -> Result<Vec<Range>, WindowError> {
    let mut known: Vec<(Range, &str)> = Vec::new();
    for line in lines {
        for range in ranges(line)? {
            if let Some((_, other)) = known.iter().find(|(other, _)| range.overlaps(*other)) {
                return Err(WindowError::Overlap {
                    text: line.clone(),
                    other: (*other).to_owned(),
                });
            }
            known.push((range, line));
        }
    }
    Ok(known.into_iter().map(|(range, _)| range).collect())
}

fn ranges(line: &str) -> Result<Vec<Range>, WindowError> {
    let wrong = |reason: String| WindowError::Weekly {
        text: line.to_owned(),
        reason,
    };
    let [days, hours] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(wrong("it is not days, a blank and hours".into()));
    };
    let (from, to) = hours
        .split_once('-')
        .ok_or_else(|| wrong(format!("{hours:?} is not two times with a dash between them")))?;
    let (start, end) = (
        time(from, MINUTES_A_DAY - 1).map_err(wrong)?,
        time(to, MINUTES_A_DAY).map_err(wrong)?,
    );
    if start == end {
        return Err(wrong(format!(
            "it opens and closes at {from}; a whole day is 00:00-24:00"
        )));
    }
    let next_day = if end < start { MINUTES_A_DAY } else { 0 };
    let on = |day: usize| {
        let midnight = day as u32 * MINUTES_A_DAY;
        Range {
            start: midnight + start,
            end: midnight + end + next_day,
        }
    };
    Ok(self::days(days).map_err(wrong)?.into_iter().map(on).collect())
}

/// Minutes after midnight.
fn time(text: &str, latest: u32) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not a time such as 07:30");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str| match digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse::<u32>().ok(),
        false => None,
    };
    let (hour, minute) = (number(hour).ok_or_else(wrong)?, number(minute).ok_or_else(wrong)?);
    let minutes = hour * 60 + minute;
    match minute < 60 && minutes <= latest {
        true => Ok(minutes),
        false => Err(format!(
            "{text:?} is no time of a day at which it can open or close"
        )),
    }
}

/// `daily`, `MON`, `MON-FRI`, `SAT,SUN`, and what these make together; over the end of the week, too.
fn days(text: &str) -> Result<Vec<usize>, String> {
    if text.eq_ignore_ascii_case("daily") {
        return Ok((0..DAYS.len()).collect());
    }
    let day = |name: &str| {
        DAYS.iter()
            .position(|day| day.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("{name:?} is no day; days are {} and daily", DAYS.join(", ")))
    };
    let mut named = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let span = (last + DAYS.len() - first) % DAYS.len();
        for day in (first..=first + span).map(|day| day % DAYS.len()) {
            if named.contains(&day) {
                return Err(format!("{} is named twice", DAYS[day]));
            }
            named.push(day);
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &[&str]) -> Result<Vec<(String, String)>, String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let ranges = parse(&lines).map_err(|error| error.to_string())?;
        Ok(ranges.into_iter().map(Range::cron).collect())
    }

    #[test]
    fn a_range_is_a_pair_for_each_day() {
        let pair = |opens: &str, closes: &str| (opens.to_owned(), closes.to_owned());
        assert_eq!(
            all(&["SAT-MON 20:00-07:30", "wed,Thu 00:00-24:00"]).unwrap(),
            [
                pair("0 20 * * SAT", "30 7 * * SUN"),
                pair("0 20 * * SUN", "30 7 * * MON"),
                pair("0 20 * * MON", "30 7 * * TUE"),
                pair("0 0 * * WED", "0 0 * * THU"),
                pair("0 0 * * THU", "0 0 * * FRI"),
            ]
        );
        assert_eq!(all(&["daily 09:00-17:00"]).unwrap().len(), 7);
    }

    #[test]
    fn what_contradicts_itself_is_explained() {
        for (lines, said) in [
            (&["MON 20:00"][..], "not two times"),
            (&["20:00-21:00"], "days, a blank and hours"),
            (&["MO 20:00-21:00"], "\"MO\" is no day"),
            (&["MON-WED,TUE 20:00-21:00"], "TUE is named twice"),
            (&["MON 20:00-20:00"], "00:00-24:00"),
            (&["MON 24:00-25:00"], "\"24:00\" is no time"),
            (&["MON 20:60-21:00"], "\"20:60\" is no time"),
            (&["MON 8-9"], "\"8\" is not a time"),
            (&["SUN 20:00-08:00", "MON 07:59-09:00"], "both are open"),
            (&["MON 07:59-09:00", "SUN 20:00-08:00"], "both are open"),
            (&["daily 20:00-08:00", "SAT 01:00-02:00"], "both are open"),
        ] {
            let error = all(lines).unwrap_err();
            assert!(error.contains(said), "{lines:?}: {error}");
        }
        assert!(
            all(&["SUN 20:00-08:00", "MON 08:00-09:00"]).is_ok(),
            "they only touch"
        );
    }
}
