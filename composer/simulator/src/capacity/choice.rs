//! What could be bought: more GPUs of a kind, hosts, slots or links, or nothing.

use super::Prices;
use crate::site::{Hosts, Kind, MOST, MOST_SLOTS, Site};
use poolwright_model::profile::Profiles;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// One thing to buy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addition {
    Gpus {
        count: u32,
        kind: String,
    },
    /// Of as many slots as most hosts have, where nothing else is said.
    Hosts {
        count: u32,
        slots: Option<u32>,
    },
    /// Every host has at least so many slots.
    Slots {
        each: u32,
    },
    /// Every host has at least so many ports to the fabric, each with the slots that its others have.
    Links {
        each: u32,
    },
    /// The uplink of every switch carries at least so many GPUs.
    Uplinks {
        each: u32,
    },
}

/// Things that are bought together; none of them: nothing is bought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice(pub Vec<Addition>);

/// Why a choice can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("{0:?} is no option: {GRAMMAR}")]
    Unreadable(String),
    #[error("{text:?}: {value} is out of range; allowed is 1 to {most}")]
    Range { text: String, value: String, most: u32 },
    #[error("{kind:?} is neither a kind in the pool nor one with a hardware profile. {hint}")]
    Unknown { kind: String, hint: String },
    #[error("{choice}: {why}")]
    Pointless { choice: String, why: &'static str },
    #[error("{choice}: the pool would be too large: {why}")]
    TooLarge { choice: String, why: String },
}

const GRAMMAR: &str = "give N x KIND, N hosts, N hosts of S slots, S slots a host, L links a host, U GPUs an uplink, \
or several of them with + between them";

impl Choice {
    /// The pool with what is bought.
    ///
    /// # Errors
    ///
    /// What can't be bought, or would change nothing.
    pub fn applied(&self, site: &Site) -> Result<Site, ChoiceError> {
        let mut site = site.clone();
        for addition in &self.0 {
            self.add(addition, &mut site)?;
        }
        let too_large = |error: crate::site::SiteError| ChoiceError::TooLarge {
            choice: self.to_string(),
            why: error.to_string(),
        };
        Site::new(site.kinds, site.hosts)
            .and_then(|new| new.behind(site.switches))
            .map_err(too_large)
    }

    fn add(&self, addition: &Addition, site: &mut Site) -> Result<(), ChoiceError> {
        let pointless = |why| ChoiceError::Pointless {
            choice: self.to_string(),
            why,
        };
        match addition {
            Addition::Gpus { count, kind } => {
                let known = site.kinds.iter_mut().find(|known| known.is_meant_by(kind));
                if let Some(known) = known {
                    known.gpus = known.gpus.saturating_add(*count);
                    return Ok(());
                }
                let profile = Profiles::builtin().named(kind);
                let profile = profile.map_err(|unknown| ChoiceError::Unknown {
                    kind: kind.clone(),
                    hint: unknown.hint(),
                })?;
                site.kinds.push(Kind::new(&profile.name, *count));
            }
            Addition::Hosts { count, slots } => {
                let like = most_common(site).cloned();
                let like = like.ok_or_else(|| pointless("no host is there whose like it could be"))?;
                let hosts = match slots {
                    Some(slots) => Hosts {
                        count: *count,
                        slots: *slots,
                        links: 1,
                    },
                    None => Hosts {
                        count: *count,
                        ..like
                    },
                };
                site.hosts.push(hosts);
            }
            Addition::Slots { each } => {
                if site.hosts.iter().all(|hosts| hosts.slots >= *each) {
                    return Err(pointless("no host has fewer slots"));
                }
                site.hosts
                    .iter_mut()
                    .for_each(|hosts| hosts.slots = hosts.slots.max(*each));
            }
            Addition::Links { each } => {
                if site.hosts.iter().all(|hosts| hosts.links >= *each) {
                    return Err(pointless("no host has fewer links"));
                }
                for hosts in site.hosts.iter_mut().filter(|hosts| hosts.links < *each) {
                    let slots = hosts.slots.saturating_mul(*each) / hosts.links.max(1);
                    (hosts.slots, hosts.links) = (slots, *each);
                }
            }
            Addition::Uplinks { each } => match &mut site.switches {
                Some(switches) if switches.uplink_gpus < *each => switches.uplink_gpus = *each,
                Some(_) => return Err(pointless("no uplink carries fewer")),
                None => {
                    return Err(pointless(
                        "no uplinks are known that would limit anything: a scenario gives them as switches = \
                         {count = N, uplink_gpus = N}",
                    ));
                }
            },
        }
        Ok(())
    }

    /// What the choice costs beside a pool, as far as prices are known; and what has none.
    #[must_use]
    pub fn cost(&self, before: &Site, after: &Site, prices: &Prices) -> (Option<f64>, Vec<String>) {
        let mut bought: Vec<(String, u32, Option<f64>)> = Vec::new();
        for kind in &after.kinds {
            let had = before.kinds.iter().find(|had| had.name == kind.name);
            let more = kind.gpus - had.map_or(0, |had| had.gpus);
            let given = prices.kinds.get(&kind.name).copied();
            bought.push((kind.name.clone(), more, given.or(kind.price_usd)));
        }
        let hosts = after.host_count() - before.host_count();
        bought.push(("host".to_owned(), hosts, prices.host));
        // A new host is bought with its slots and links.
        let (mut slots, mut links) = (0, 0);
        for (after, before) in after.hosts.iter().zip(&before.hosts) {
            slots += (after.slots - before.slots) * after.count;
            links += (after.links - before.links) * after.count;
        }
        match links {
            0 => bought.push(("slot".to_owned(), slots, prices.slot)),
            links => bought.push(("link".to_owned(), links, prices.link)),
        }
        if let (Some(after), Some(before)) = (after.switches, before.switches) {
            let more = (after.uplink_gpus - before.uplink_gpus).saturating_mul(after.count);
            bought.push(("uplink".to_owned(), more, prices.uplink));
        }
        bought.retain(|(_, count, _)| *count > 0);
        let without = bought.iter().filter(|(_, _, price)| price.is_none());
        let without: Vec<String> = without.map(|(name, ..)| name.clone()).collect();
        let all = bought
            .iter()
            .map(|(_, count, price)| Some(f64::from(*count) * (*price)?));
        // Nothing at all sums up to -0.
        (all.sum::<Option<f64>>().map(|usd| usd + 0.0), without)
    }
}

/// The hosts of which there are the most.
fn most_common(site: &Site) -> Option<&Hosts> {
    site.hosts.iter().max_by_key(|hosts| hosts.count)
}

/// What is looked at where nothing was named: a quarter more of each kind, a quarter more hosts, twice the slots, a link
/// more a host, twice the uplinks where they are limited, a quarter more of everything, and kinds that jobs ask for in vain.
#[must_use]
pub fn usual(site: &Site, asked_in_vain: &[(String, u32)]) -> Vec<Choice> {
    let more = |of: u32| of.div_ceil(4);
    let mut choices = Vec::new();
    let mut all = Vec::new();
    let mut kinds: Vec<&Kind> = site.kinds.iter().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.gpus));
    for kind in kinds.into_iter().take(4) {
        let gpus = Addition::Gpus {
            count: more(kind.gpus),
            kind: kind.name.clone(),
        };
        all.push(gpus.clone());
        choices.push(Choice(vec![gpus]));
    }
    let hosts = Addition::Hosts {
        count: more(site.host_count()),
        slots: None,
    };
    all.push(hosts.clone());
    choices.push(Choice(vec![hosts]));
    let widest = site.hosts.iter().map(|hosts| hosts.slots).max().unwrap_or(0);
    choices.push(Choice(vec![Addition::Slots {
        each: (2 * widest).clamp(1, MOST_SLOTS),
    }]));
    let links = site.hosts.iter().map(|hosts| hosts.links).max().unwrap_or(0);
    choices.push(Choice(vec![Addition::Links { each: links + 1 }]));
    if let Some(switches) = site.switches {
        let each = switches.uplink_gpus.saturating_mul(2).clamp(1, MOST);
        choices.push(Choice(vec![Addition::Uplinks { each }]));
    }
    choices.push(Choice(all));
    for (kind, gpus) in asked_in_vain.iter().take(4) {
        choices.push(Choice(vec![Addition::Gpus {
            count: *gpus,
            kind: kind.clone(),
        }]));
    }
    choices.retain(|choice| choice.applied(site).is_ok());
    choices
}

impl fmt::Display for Addition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |count: u32| if count == 1 { "" } else { "s" };
        match self {
            Self::Gpus { count, kind } => write!(f, "{count} x {kind}"),
            Self::Hosts { count, slots: None } => write!(f, "{count} host{}", s(*count)),
            Self::Hosts {
                count,
                slots: Some(slots),
            } => write!(f, "{count} host{} of {slots} slot{}", s(*count), s(*slots)),
            Self::Slots { each } => write!(f, "{each} slot{} a host", s(*each)),
            Self::Uplinks { each } => write!(f, "{each} GPU{} an uplink", s(*each)),
            Self::Links { each } => write!(f, "{each} link{} a host", s(*each)),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("buy nothing");
        }
        let all: Vec<String> = self.0.iter().map(Addition::to_string).collect();
        f.write_str(&all.join(" + "))
    }
}

impl Serialize for Choice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        text.split('+').map(addition).collect::<Result<_, _>>().map(Self)
    }
}

fn addition(text: &str) -> Result<Addition, ChoiceError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let unreadable = || ChoiceError::Unreadable(text.trim().to_owned());
    let count = |word: &str, most: u32| match word.parse::<u64>() {
        Ok(value) => match u32::try_from(value)
            .ok()
            .filter(|value| (1..=most).contains(value))
        {
            Some(value) => Ok(value),
            None => Err(ChoiceError::Range {
                text: text.trim().to_owned(),
                value: word.to_owned(),
                most,
            }),
        },
        Err(_) => Err(unreadable()),
    };
    Ok(match words.as_slice() {
        [n, "host" | "hosts"] => Addition::Hosts {
            count: count(n, MOST)?,
            slots: None,
        },
        [n, "host" | "hosts", "of", slots, "slot" | "slots"] => Addition::Hosts {
            count: count(n, MOST)?,
            slots: Some(count(slots, MOST_SLOTS)?),
        },
        [n, "slot" | "slots", "a" | "per", "host"] => Addition::Slots {
            each: count(n, MOST_SLOTS)?,
        },
        [n, "link" | "links", "a" | "per", "host"] => Addition::Links {
            each: count(n, MOST_SLOTS)?,
        },
        [n, "GPU" | "GPUs" | "gpu" | "gpus", "a" | "an" | "per", "uplink"] => Addition::Uplinks {
            each: count(n, MOST)?,
        },
        [n, "x", kind] | [n, kind] => Addition::Gpus {
            count: count(n, MOST)?,
            kind: (*kind).to_owned(),
        },
        _ => return Err(unreadable()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Switches;

    fn site() -> Site {
        let hosts = |count, slots| Hosts {
            count,
            slots,
            links: 1,
        };
        Site::new(
            vec![Kind::new("l4", 8), Kind::new("h100-pcie-80gb", 4)],
            vec![hosts(3, 4), hosts(1, 8)],
        )
        .unwrap()
    }

    fn bought(text: &str) -> Result<Site, ChoiceError> {
        text.parse::<Choice>()?.applied(&site())
    }

    #[test]
    fn what_is_said_is_added() {
        let gpus = |site: &Site, kind: &str| site.kinds.iter().find(|k| k.name == kind).map(|k| k.gpus);
        assert_eq!(gpus(&bought("8 x l4").unwrap(), "l4"), Some(16));
        assert_eq!(
            gpus(&bought("2 H100-PCIE-80GB").unwrap(), "h100-pcie-80gb"),
            Some(6)
        );
        let hosts = bought("2 hosts").unwrap();
        assert_eq!((hosts.host_count(), hosts.slots()), (6, 28), "like most hosts");
        assert_eq!(bought("1 host of 16 slots").unwrap().slots(), 36);
        assert_eq!(bought("6 slots a host").unwrap().slots(), 26, "none loses any");
        assert_eq!(bought("2 links a host").unwrap().slots(), 40);
        let both = bought("1 x l4 + 1 host").unwrap();
        assert_eq!((both.gpus(), both.host_count()), (13, 5));
        assert_eq!(
            "2 x l4+1 hosts".parse::<Choice>().unwrap().to_string(),
            "2 x l4 + 1 host"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (text, word) in [
            ("", "N x KIND"),
            ("many hosts", "N x KIND"),
            ("0 hosts", "1 to 65536"),
            ("99999999999 x l4", "1 to 65536"),
            ("4 slots a host", "no host has fewer"),
            ("1 link a host", "no host has fewer"),
            ("8 GPUs an uplink", "no uplinks are known"),
            ("1 x voodoo2", "voodoo2"),
            ("65536 hosts", "too large"),
        ] {
            let error = bought(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_cost_is_the_sum_of_known_prices_or_says_what_has_none() {
        let cost = |text: &str, prices: &Prices| {
            let choice: Choice = text.parse().unwrap();
            choice.cost(&site(), &choice.applied(&site()).unwrap(), prices)
        };
        let (usd, without) = cost("2 hosts + 2 x l4", &Prices::default());
        assert_eq!((usd, without[..].join(" ").contains("host")), (None, true));
        let mut prices = Prices {
            host: Some(10.0),
            slot: Some(1.0),
            ..Prices::default()
        };
        prices.kinds.insert("l4".to_owned(), 100.0);
        assert_eq!(cost("2 hosts + 2 x l4", &prices), (Some(220.0), vec![]));
        assert_eq!(cost("6 slots a host", &prices), (Some(6.0), vec![]));
        assert_eq!(cost("2 links a host", &prices), (None, vec!["link".to_owned()]));
        assert_eq!(
            Choice::default().cost(&site(), &site(), &prices),
            (Some(0.0), vec![])
        );
    }

    #[test]
    fn uplinks_are_bought_for_every_switch() {
        let switches = |uplink_gpus| {
            let switches = Switches {
                count: 2,
                uplink_gpus,
            };
            site().behind(Some(switches)).unwrap()
        };
        let choice: Choice = "8 GPUs an uplink".parse().unwrap();
        assert_eq!(choice.to_string(), "8 GPUs an uplink");
        let prices = Prices {
            uplink: Some(10.0),
            ..Prices::default()
        };
        let more = choice.applied(&switches(1)).unwrap();
        assert_eq!(more, switches(8));
        assert_eq!(choice.cost(&switches(1), &more, &prices), (Some(140.0), vec![]));
        assert!(
            choice
                .applied(&switches(8))
                .unwrap_err()
                .to_string()
                .contains("no uplink carries fewer")
        );
        assert!(usual(&switches(1), &[]).contains(&"2 GPUs an uplink".parse().unwrap()));
    }

    #[test]
    fn the_usual_choices_can_be_made() {
        let choices = usual(
            &site(),
            &[("a100-pcie-40gb".to_owned(), 2), ("voodoo2".to_owned(), 1)],
        );
        let names: Vec<String> = choices.iter().map(Choice::to_string).collect();
        assert_eq!(
            names,
            [
                "2 x l4",
                "1 x h100-pcie-80gb",
                "1 host",
                "16 slots a host",
                "2 links a host",
                "2 x l4 + 1 x h100-pcie-80gb + 1 host",
                "2 x a100-pcie-40gb",
            ]
        );
    }
}
