//! For tests: the same address written in other ways.

use proptest::prelude::{Strategy, any};

/// For each character whether it is encoded, and in small letters.
pub(super) type Choices = Vec<(bool, bool)>;

pub(super) fn choices() -> impl Strategy<Value = Choices> {
    proptest::collection::vec(any::<(bool, bool)>(), 200)
}

/// A text with those of its ASCII characters encoded that are chosen, but for what keeps its parts apart.
pub(super) fn encoded(plain: &str, apart: &str, choices: &Choices) -> String {
    let chosen = plain.chars().zip(choices.iter().cycle());
    chosen
        .map(|(c, choice)| match choice {
            (true, _) if apart.contains(c) => c.to_string(),
            (true, true) => format!("%{:02x}", c as u32),
            (true, false) => format!("%{:02X}", c as u32),
            (false, _) => c.to_string(),
        })
        .collect()
}
