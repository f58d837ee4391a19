//! How wide the columns of a table are within a terminal: words and figures stay whole as long as that can be. The
//! widest column gives way first; where that is not enough, columns that may go are left out; words are broken last.

/// Between two columns.
pub(super) const GAP: usize = 2;
/// Text up to this length stays on one line: `79.6 GiB`, `2 of 3`.
const WHOLE: usize = 12;

/// What one column needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// With nothing broken.
    whole: usize,
    /// With lines broken between words.
    least: usize,
    /// It may be left out.
    may_go: bool,
}

impl Need {
    /// Of a column with these texts, header included. One that must not be broken is as wide as its longest.
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a str>, unbroken: bool, may_go: bool) -> Self {
        let mut need = Self {
            whole: 0,
            least: 0,
            may_go,
        };
        for text in texts {
            let whole = text.chars().count();
            let word = text
                .split(' ')
                .map(|word| word.chars().count())
                .max()
                .unwrap_or(0);
            need.whole = need.whole.max(whole);
            need.least = need
                .least
                .max(if whole <= WHOLE || unbroken { whole } else { word });
        }
        need
    }
}

/// The width of each column without its gap; `None` for one that is left out.
pub(super) fn fit(needs: &[Need], width: usize) -> Vec<Option<usize>> {
    let mut kept: Vec<bool> = vec![true; needs.len()];
    let gaps = |kept: &[bool]| GAP * kept.iter().filter(|kept| **kept).count().saturating_sub(1);
    let least = |kept: &[bool]| -> usize {
        let columns = needs.iter().zip(kept).filter(|(_, kept)| **kept);
        columns.map(|(need, _)| need.least).sum::<usize>() + gaps(kept)
    };
    // Those on the right matter least.
    for at in (0..needs.len()).rev().filter(|at| needs[*at].may_go) {
        if least(&kept) > width {
            kept[at] = false;
        }
    }
    // What went before a wider one may have room again.
    for at in 0..needs.len() {
        if !kept[at] {
            kept[at] = true;
            kept[at] = least(&kept) <= width;
        }
    }
    let room = width.saturating_sub(gaps(&kept));
    let mut widths: Vec<Option<usize>> = needs
        .iter()
        .zip(&kept)
        .map(|(need, kept)| kept.then_some(need.whole))
        .collect();
    let breaks_words = least(&kept) > width;
    loop {
        let total: usize = widths.iter().flatten().sum();
        let floor = |at: usize| if breaks_words { 1 } else { needs[at].least };
        let widest = (0..widths.len())
            .filter(|at| widths[*at].is_some_and(|wide| wide > floor(*at)))
            .max_by_key(|at| widths[*at]);
        match widest {
            Some(at) if total > room => widths[at] = widths[at].map(|wide| wide - 1),
            _ => return widths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str, may_go: bool) -> Need {
        Need::of(std::iter::once(text), false, may_go)
    }

    #[test]
    fn the_widest_gives_way_between_words() {
        let needs = [need("compose", false), need("a sentence of several words", false)];
        assert_eq!(fit(&needs, 80), [Some(7), Some(27)]);
        assert_eq!(fit(&needs, 29), [Some(7), Some(20)]);
        // Figures stay whole.
        assert_eq!(need("79.6 GiB", false).least, 8);
    }

    #[test]
    fn what_has_room_again_stays() {
        let needs = [
            need("operation-1", false),
            need("2026-11-21T16:30:19", true),
            need("7 W", true),
        ];
        assert_eq!(fit(&needs, 20), [Some(11), None, Some(3)]);
    }

    #[test]
    fn what_may_go_goes_before_a_word_is_broken() {
        let needs = [
            need("operation-1", false),
            need("2026-11-21 16:30:19 UTC", true),
            need("quarantined", false),
        ];
        assert_eq!(fit(&needs, 26), [Some(11), None, Some(11)]);
        // Nothing more may go: then words break.
        let narrow = fit(&needs, 12);
        assert!(
            narrow.iter().flatten().sum::<usize>() <= 10 && narrow[1].is_none(),
            "{narrow:?}"
        );
    }
}
