//! How wide the columns of a table are within a terminal. Names, figures, dates and headings are never broken: first
//! dates lose their seconds, then columns are left out in the order in which they may go, then the widest text is broken
//! between words. A table that is still too wide exceeds its terminal unbroken, so that it can be copied.

/// Between two columns.
pub(super) const GAP: usize = 2;
/// Text up to this length stays on one line: `79.6 GiB`, `2 of 3`.
const WHOLE: usize = 12;
/// A longer word in a sentence (an address, a digest) is broken before another column goes for it.
const LONG: usize = 40;

/// When a column is left out where there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Goes {
    /// It may: those with the smallest number first.
    InTurn(u8),
    /// It may, after all columns that go in turn.
    Late,
    /// It may, after all others: no other column has its data.
    Last,
    /// It is what a row is about.
    Never,
}

/// What one column needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// With nothing broken.
    whole: usize,
    /// With lines broken between words.
    least: usize,
    /// With its moments told to the minute.
    short: Option<usize>,
    goes: Goes,
}

/// How cells of a column may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaks {
    Never,
    /// Between words.
    Words,
}

impl Need {
    /// Of a column under this heading.
    pub(super) fn of<'a>(
        heading: &str,
        cells: impl Iterator<Item = &'a str>,
        breaks: Breaks,
        goes: Goes,
    ) -> Self {
        let heading = heading.chars().count();
        let (mut whole, mut least, mut is_text) = (heading, heading, false);
        for text in cells {
            let wide = text.chars().count();
            let longest = text.split(' ').map(|word| word.chars().count()).max();
            let is_broken = breaks == Breaks::Words && wide > WHOLE;
            is_text |= is_broken && text.contains(' ');
            whole = whole.max(wide);
            least = least.max(if is_broken { longest.unwrap_or(0) } else { wide });
        }
        Self {
            whole,
            least,
            short: None,
            goes: match goes {
                Goes::Late if is_text => Goes::Last,
                goes => goes,
            },
        }
    }

    /// The width with timestamps to the minute.
    pub(super) fn or_short(mut self, wide: usize, heading: &str) -> Self {
        self.short = Some(wide.max(heading.chars().count()));
        self
    }

    fn shortened(self) -> Self {
        match self.short {
            Some(wide) => Self {
                whole: wide,
                least: wide,
                ..self
            },
            None => self,
        }
    }

    /// Breaks long words of text columns.
    fn breaking_words(self) -> Self {
        let is_text = self.least < self.whole;
        Self {
            least: if is_text { self.least.min(LONG) } else { self.least },
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fitted {
    /// Of each column without its gap; `None` for one that is left out.
    pub(super) widths: Vec<Option<usize>>,
    /// Whether timestamps are to the minute.
    pub(super) is_short: bool,
}

/// The width of each column.
pub(super) fn fit(needs: &[Need], width: usize) -> Fitted {
    let least = |needs: &[Need], kept: &[bool]| -> usize {
        let columns = needs.iter().zip(kept).filter(|(_, kept)| **kept);
        columns.map(|(need, _)| need.least).sum::<usize>() + gaps(kept)
    };
    let mut needs = needs.to_vec();
    let mut kept = vec![true; needs.len()];
    let mut is_short = false;
    if least(&needs, &kept) > width {
        is_short = needs.iter().any(|need| need.short.is_some());
        needs = needs.into_iter().map(Need::shortened).collect();
    }
    // Of those that go in the same turn the ones on the right matter least.
    let mut order: Vec<usize> = (0..needs.len()).rev().collect();
    order.sort_by_key(|at| needs[*at].goes);
    for at in &order {
        let goes = needs[*at].goes;
        if goes >= Goes::Late && least(&needs, &kept) > width {
            needs = needs.into_iter().map(Need::breaking_words).collect();
        }
        if goes < Goes::Never && least(&needs, &kept) > width {
            kept[*at] = false;
        }
    }
    // What went before a wider one may have room again.
    for at in order.iter().rev() {
        if !kept[*at] {
            kept[*at] = true;
            kept[*at] = least(&needs, &kept) <= width;
        }
    }
    let room = width.saturating_sub(gaps(&kept));
    let mut widths: Vec<Option<usize>> = needs
        .iter()
        .zip(&kept)
        .map(|(need, kept)| kept.then_some(need.whole))
        .collect();
    loop {
        let total: usize = widths.iter().flatten().sum();
        let widest = (0..widths.len())
            .filter(|at| widths[*at].is_some_and(|wide| wide > needs[*at].least))
            .max_by_key(|at| widths[*at]);
        match widest {
            Some(at) if total > room => widths[at] = widths[at].map(|wide| wide - 1),
            _ => return Fitted { widths, is_short },
        }
    }
}

fn gaps(kept: &[bool]) -> usize {
    GAP * kept.iter().filter(|kept| **kept).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str, goes: Goes) -> Need {
        Need::of("", std::iter::once(text), Breaks::Words, goes)
    }

    fn widths(needs: &[Need], width: usize) -> Vec<Option<usize>> {
        fit(needs, width).widths
    }

    #[test]
    fn the_widest_gives_way_between_words() {
        let needs = [
            need("compose", Goes::Never),
            need("a sentence of several words", Goes::Late),
        ];
        assert_eq!(widths(&needs, 80), [Some(7), Some(27)]);
        assert_eq!(widths(&needs, 29), [Some(7), Some(20)]);
        // Figures stay whole.
        assert_eq!(need("79.6 GiB", Goes::Late).least, 8);
    }

    #[test]
    fn columns_go_in_their_turn_and_what_has_room_again_stays() {
        let needs = [
            need("operation-1", Goes::Never),
            need("2026-11-21T16:30:19", Goes::InTurn(1)),
            need("7 W", Goes::InTurn(1)),
        ];
        assert_eq!(widths(&needs, 20), [Some(11), None, Some(3)]);
        let needs = [
            need("operation-1", Goes::Never),
            need("quarantined", Goes::InTurn(2)),
            need("host-1", Goes::InTurn(1)),
            need("it does not answer", Goes::Late),
        ];
        assert_eq!(widths(&needs, 35), [Some(11), Some(11), None, Some(9)]);
        assert_eq!(widths(&needs, 30), [Some(11), None, Some(6), Some(9)]);
        // A sentence goes after what else may.
        assert_eq!(widths(&needs, 20), [Some(11), None, None, Some(7)]);
    }

    #[test]
    fn moments_lose_their_seconds_before_a_column_goes() {
        let moment = Need::of(
            "AT",
            std::iter::once("2026-11-21 16:30:19 UTC"),
            Breaks::Never,
            Goes::Late,
        );
        let needs = [
            need("operation-1", Goes::Never),
            moment.or_short(16, "AT"),
            need("3", Goes::InTurn(1)),
        ];
        let fitted = fit(&needs, 40);
        assert_eq!(
            (fitted.widths, fitted.is_short),
            (vec![Some(11), Some(23), Some(1)], false)
        );
        let fitted = fit(&needs, 35);
        assert_eq!(
            (fitted.widths, fitted.is_short),
            (vec![Some(11), Some(16), Some(1)], true)
        );
    }

    #[test]
    fn what_a_row_is_about_is_never_broken() {
        let needs = [
            need("operation-1", Goes::Never),
            need("2026-11-21 16:30:19 UTC", Goes::InTurn(1)),
            need("quarantined", Goes::Late),
        ];
        assert_eq!(widths(&needs, 26), [Some(11), None, Some(11)]);
        assert_eq!(widths(&needs, 12), [Some(11), None, None]);
        assert_eq!(widths(&needs, 5), [Some(11), None, None]);
    }
}
