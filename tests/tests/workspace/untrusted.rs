//! The fuzz targets on a stable compiler: what they begin with, and thousands of inputs made of it. The same seed gives the
//! same inputs; a panic is a failure, and names the bytes. With `POOLWRIGHT_FUZZ_SECONDS` each target goes on for so long.

use fastrand::Rng;
use poolwright_tests::untrusted::{TARGETS, Target};
use poolwright_tests::workspace::tree_to_judge;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

const INPUTS: usize = 4_000;

/// How long each target is tried at least.
fn longer() -> Duration {
    let seconds = std::env::var("POOLWRIGHT_FUZZ_SECONDS").ok();
    Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().expect("a number of seconds")))
}

/// What means something to one reader or another.
const WORDS: [&str; 16] = [
    "{",
    "}",
    "[[",
    "]]",
    "\"",
    "'",
    "\\",
    "%2e%2E",
    "%",
    "..",
    "\u{0}",
    "null",
    "-1e999",
    "9223372036854775808",
    "&",
    "\n",
];

/// One input made of others: a piece is cut out, doubled, put in from elsewhere, or changed.
fn mutated(seeds: &[&str], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.choice(seeds).unwrap().as_bytes().to_vec();
    for _ in 0..rng.usize(1..6) {
        let from = rng.usize(0..=bytes.len());
        let to = rng.usize(from..=bytes.len().min(from + 20));
        match rng.u8(0..5) {
            0 => drop(bytes.drain(from..to)),
            1 => bytes.splice(from..from, bytes[from..to].to_vec()).for_each(drop),
            2 => bytes
                .splice(from..to, rng.choice(WORDS).unwrap().bytes())
                .for_each(drop),
            3 => bytes
                .iter_mut()
                .skip(from)
                .take(1)
                .for_each(|byte| *byte ^= 1 << rng.u8(0..8)),
            _ => {
                let other = rng.choice(seeds).unwrap().as_bytes();
                let at = rng.usize(0..other.len());
                bytes
                    .splice(from..to, other[at..].iter().copied().take(30))
                    .for_each(drop);
            }
        }
    }
    bytes
}

fn try_all(target: &Target) {
    for seed in target.seeds {
        assert!(
            (target.read)(seed.as_bytes()),
            "{}: not understood: {seed}",
            target.name
        );
    }
    let mut rng = Rng::with_seed(7);
    let (mut tried, mut understood) = (0, 0);
    let (began, longer) = (Instant::now(), longer());
    while tried < INPUTS || began.elapsed() < longer {
        tried += 1;
        let bytes = mutated(target.seeds, &mut rng);
        let read = catch_unwind(|| (target.read)(&bytes));
        let shown = String::from_utf8_lossy(&bytes);
        understood += usize::from(read.unwrap_or_else(|_| panic!("{}: {shown:?}", target.name)));
    }
    // Otherwise only the way to the first error is tried.
    assert!(
        understood > tried / 100,
        "{}: {understood} of {tried} were understood",
        target.name
    );
    assert!(understood < tried, "{}: nothing was refused", target.name);
}

#[test]
fn no_bytes_are_too_strange_for_what_reads_them() {
    TARGETS.iter().for_each(try_all);
}

#[test]
fn every_target_has_a_fuzzer_and_every_fuzzer_a_target() {
    let fuzzers = std::fs::read_dir(tree_to_judge().join("fuzz/fuzz_targets")).unwrap();
    let mut fuzzers: Vec<String> = fuzzers
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut targets = TARGETS.map(|target| target.name.to_owned());
    fuzzers.sort();
    targets.sort();
    assert_eq!(fuzzers, targets);
}
