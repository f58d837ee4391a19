//! Whether a GPU that came can be used. That the fabric said so, and that sysfs shows it, is not enough.

use crate::check::Check;
use poolwright_pcie::{Address, Function, Ids, Link, Look};

/// What is expected of it. What is `None`, or empty, is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub vendor: Option<u16>,
    pub device: Option<u16>,
    /// Registers in memory that it has.
    pub bars: Option<usize>,
    /// The least that its link must carry: at its best, for an idle GPU slows it down to save power. Where that is not
    /// said, the width that both its ends have.
    pub link: Option<Link>,
    pub driver: Option<String>,
}

/// Looks once at the function at an address.
pub fn verify(look: &Look, at: Address, expected: &Expected) -> Vec<Check> {
    let Some(function) = look.functions.iter().find(|function| function.address == at) else {
        return vec![Check::bad("there", format!("nothing is at {at}"))];
    };
    let mut checks = vec![Check::good("there", at.to_string()), answers(function)];
    if function.answers == Some(false) {
        // What else sysfs says of it is what was.
        return checks;
    }
    checks.extend(ids(function.ids, expected));
    checks.push(bars(function, expected));
    let least = expected.link.or_else(|| can_be(look, function));
    checks.extend(least.map(|least| link(look, function, least)));
    checks.extend(expected.driver.as_ref().map(|driver| {
        let bound = function.driver.as_deref().unwrap_or("none");
        Check::that(
            "driver",
            bound == driver,
            bound,
            format!("{bound} is bound, and {driver} is expected"),
        )
    }));
    checks
}

fn answers(function: &Function) -> Check {
    match function.answers {
        Some(true) => Check::good("answers", "its config space answers"),
        Some(false) => Check::bad("answers", "its config space reads all ones: it is gone, or dead"),
        None => Check::cannot_tell("answers", "its config space can't be read"),
    }
}

fn ids(ids: Option<Ids>, expected: &Expected) -> Option<Check> {
    if expected.vendor.is_none() && expected.device.is_none() {
        return None;
    }
    let Some(ids) = ids else {
        return Some(Check::cannot_tell("ids", "its ids can't be read"));
    };
    let is_same = expected.vendor.is_none_or(|vendor| vendor == ids.vendor)
        && expected.device.is_none_or(|device| device == ids.device);
    let says = format!("{:04x}:{:04x}", ids.vendor, ids.device);
    let any = |id: Option<u16>| id.map_or_else(|| "any".to_owned(), |id| format!("{id:04x}"));
    let bad = format!(
        "{says}, and {}:{} is expected",
        any(expected.vendor),
        any(expected.device)
    );
    Some(Check::that("ids", is_same, says, bad))
}

fn bars(function: &Function, expected: &Expected) -> Check {
    let found = function.bars.len();
    let without = function.bars_without_room.as_deref();
    match (without, expected.bars) {
        (Some([_, ..]), _) => {
            let numbers: Vec<String> = without.unwrap_or_default().iter().map(u8::to_string).collect();
            Check::bad(
                "bars",
                format!("no room was found for register {}", numbers.join(", ")),
            )
        }
        (_, Some(count)) => Check::that(
            "bars",
            found >= count,
            format!("{found} have addresses"),
            format!("{found} of {count} have addresses"),
        ),
        // One that has none at all is a GPU that nothing can reach.
        (Some([]), None) => Check::that(
            "bars",
            found > 0,
            format!("{found} have addresses"),
            "none has an address",
        ),
        (None, None) => Check::cannot_tell(
            "bars",
            "its config space can't be read, nor how many there should be",
        ),
    }
}

/// What a link can carry whose other end is the port above. `None`: it has none, or one of the two can't be read.
fn can_be(look: &Look, function: &Function) -> Option<Link> {
    let above = look
        .functions
        .iter()
        .find(|other| Some(other.address) == function.port)?;
    let (own, others) = (function.best_link?, above.best_link?);
    Some(Link {
        mt_per_s: own.mt_per_s.min(others.mt_per_s),
        width: own.width.min(others.width),
    })
}

fn link(look: &Look, function: &Function, least: Link) -> Check {
    let words = |link: Link| format!("{} GT/s x{}", f64::from(link.mt_per_s) / 1000.0, link.width);
    let best = can_be(look, function).or(function.best_link);
    match (function.link, best) {
        (Some(now), Some(best)) => {
            // Width does not change with load; speed does.
            let is_wide = now.width >= least.width;
            let is_fast = best.mt_per_s >= least.mt_per_s;
            let says = format!("{}, at best {}", words(now), words(best));
            let bad = format!("{says}, and {} at least is expected", words(least));
            Check::that("link", is_wide && is_fast, says.clone(), bad)
        }
        _ => Check::cannot_tell("link", "its link is down, or can't be read"),
    }
}
