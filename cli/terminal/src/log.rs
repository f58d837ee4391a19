//! Log messages on stderr. A repeated warning is written once, and then once a minute with a count, so that it does not
//! hide other warnings.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Repetitions of a warning are counted for this long, and then written as one line.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Bounds the memory: with more different warnings in this time, new ones are written each time.
const MAX_COUNTED: usize = 1_000;

static REPEATS: Mutex<Repeats> = Mutex::new(Repeats(BTreeMap::new()));

fn repeats() -> MutexGuard<'static, Repeats> {
    REPEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the counts that are not written yet: for the end of the process.
pub fn end() {
    let lines = std::mem::take(&mut *repeats()).summaries();
    // A closed stream leaves no place to report a failure.
    let _ = io::stderr().write_all(&lines);
}

/// Writes each message to stderr as a line.
pub struct Stderr;

/// The writer of one message.
pub struct Message {
    may_repeat: bool,
}

impl MakeWriter<'_> for Stderr {
    type Writer = Message;

    fn make_writer(&self) -> Message {
        Message { may_repeat: false }
    }

    fn make_writer_for(&self, about: &Metadata<'_>) -> Message {
        Message {
            may_repeat: matches!(*about.level(), Level::WARN | Level::ERROR),
        }
    }
}

impl Write for Message {
    /// The subscriber writes each message by one call.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let lines = repeats().take(text, self.may_repeat, Instant::now());
        io::stderr().write_all(&lines)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The latest warnings, by their text without the time.
#[derive(Default)]
struct Repeats(BTreeMap<Vec<u8>, Repeat>);

struct Repeat {
    since: Instant,
    more: u64,
    /// The latest repetition.
    line: Vec<u8>,
}

impl Repeats {
    fn summaries(self) -> Vec<u8> {
        let repeated = self.0.into_values().filter(|repeat| repeat.more > 0);
        repeated.flat_map(|repeat| repeat.summary()).collect()
    }

    /// The lines to write for a new message.
    fn take(&mut self, line: &[u8], may_repeat: bool, now: Instant) -> Vec<u8> {
        let mut written = Vec::new();
        self.0.retain(|_, repeat| {
            let counts = now.saturating_duration_since(repeat.since) < COUNTED_FOR;
            if !counts && repeat.more > 0 {
                written.extend(repeat.summary());
            }
            counts
        });
        // Each message begins with its time.
        let text = line
            .iter()
            .position(|byte| *byte == b' ')
            .map_or(line, |at| &line[at..]);
        match self.0.get_mut(text).filter(|_| may_repeat) {
            Some(repeat) => {
                repeat.more += 1;
                repeat.line = line.to_vec();
            }
            None => {
                if may_repeat && self.0.len() < MAX_COUNTED {
                    let repeat = Repeat {
                        since: now,
                        more: 0,
                        line: Vec::new(),
                    };
                    self.0.insert(text.to_vec(), repeat);
                }
                written.extend_from_slice(line);
            }
        }
        written
    }
}

impl Repeat {
    /// The latest repetition, with the number of all.
    fn summary(&self) -> Vec<u8> {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let times = match self.more {
            1 => "once more".to_owned(),
            more => format!("{more} times more"),
        };
        let seconds = COUNTED_FOR.as_secs();
        [line, format!(" ({times} within {seconds} s)\n").as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a warning writes, this many seconds after the start.
    fn warn(repeats: &mut Repeats, start: Instant, second: u64, text: &str) -> String {
        let line = format!("2026-03-02T12:00:{:02}Z  WARN {text}\n", second % 60);
        let written = repeats.take(line.as_bytes(), true, start + Duration::from_secs(second));
        String::from_utf8(written).unwrap()
    }

    /// Fault 95: at one second and over minutes.
    #[test]
    fn a_repeated_warning_is_written_once_and_then_with_a_count() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert!(warn(&mut repeats, start, 0, "box-1 is unreachable").contains("box-1"));
        for second in 1..38 {
            assert_eq!(warn(&mut repeats, start, second, "box-1 is unreachable"), "");
        }
        assert_eq!(
            warn(&mut repeats, start, 40, "box-2 is unreachable"),
            "2026-03-02T12:00:40Z  WARN box-2 is unreachable\n",
            "a different warning is written at once"
        );
        assert_eq!(
            warn(&mut repeats, start, 61, "box-1 is unreachable"),
            "2026-03-02T12:00:37Z  WARN box-1 is unreachable (37 times more within 60 s)\n\
             2026-03-02T12:00:01Z  WARN box-1 is unreachable\n"
        );
        assert_eq!(
            warn(&mut repeats, start, 200, "all is well"),
            "2026-03-02T12:00:20Z  WARN all is well\n",
            "a warning without repetitions gets no count"
        );
        for second in 201..204 {
            warn(&mut repeats, start, second, "box-3 is unreachable");
        }
        assert_eq!(
            String::from_utf8(repeats.summaries()).unwrap(),
            "2026-03-02T12:00:23Z  WARN box-3 is unreachable (2 times more within 60 s)\n",
            "at the end of the process"
        );
    }

    #[test]
    fn other_messages_are_written_each_time() {
        let mut repeats = Repeats::default();
        for _ in 0..2 {
            let written = repeats.take(b"12:00 INFO started\n", false, Instant::now());
            assert_eq!(written, b"12:00 INFO started\n");
        }
    }
}
