//! Why a GPU cannot be moved. Unknown means not composable.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeMap};
use std::{fmt, str::FromStr};

/// The kinds of reasons, in the order in which they are looked for: what cannot be changed comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhyNotKind {
    /// Part of a baseboard that stays in its server.
    Soldered,
    /// Two GPUs claim one identity, or two endpoints tell contradicting stories about one GPU.
    Conflict,
    /// Its fabric and a host tell of different places. One was asked before it was bound, often, and the next look settles it.
    Disputed,
    /// Neither UUID nor serial number: it can't be told from another one.
    NoIdentity,
    /// No fabric that we know reaches it.
    NoFabric,
    /// A fabric shows it, but offers no way to bind it that we know.
    NoControl,
    /// No host port can reach it.
    NoHost,
    /// Its memory size is unknown, so nothing can be sized for it.
    NoMemorySize,
    /// The hardware says that it is not well.
    Unhealthy,
    /// It failed, and was taken out of use until it has been burnt in.
    Quarantined,
    /// Its endpoint was not adopted: the manager looks at it and changes nothing there.
    ObserveOnly,
    /// Its endpoint carries the mark of another manager.
    Marked,
    /// Its endpoint lost so much at once that what it shows is not believed.
    Disbelieved,
    /// Bound to a host by somebody else; left alone until adopted.
    Foreign,
    /// Bound to something at which no host is shown.
    HostGone,
    /// Not seen in the latest look.
    Missing,
    /// Too little is known of it just now: its endpoint does not answer.
    Stale,
    /// Somebody paused its endpoint, so nothing is changed there.
    Paused,
    /// An operator closed it.
    Cordoned,
}

const KINDS: &[(WhyNotKind, &str)] = &[
    (WhyNotKind::Soldered, "soldered"),
    (WhyNotKind::Conflict, "conflict"),
    (WhyNotKind::Disputed, "disputed"),
    (WhyNotKind::NoIdentity, "no-identity"),
    (WhyNotKind::NoFabric, "no-fabric"),
    (WhyNotKind::NoControl, "no-control"),
    (WhyNotKind::NoHost, "no-host"),
    (WhyNotKind::NoMemorySize, "no-memory-size"),
    (WhyNotKind::Unhealthy, "unhealthy"),
    (WhyNotKind::Quarantined, "quarantined"),
    (WhyNotKind::ObserveOnly, "observe-only"),
    (WhyNotKind::Marked, "marked"),
    (WhyNotKind::Disbelieved, "disbelieved"),
    (WhyNotKind::Foreign, "foreign"),
    (WhyNotKind::HostGone, "host-gone"),
    (WhyNotKind::Missing, "missing"),
    (WhyNotKind::Stale, "stale"),
    (WhyNotKind::Paused, "paused"),
    (WhyNotKind::Cordoned, "cordoned"),
];

impl fmt::Display for WhyNotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS
            .iter()
            .find(|(kind, _)| kind == self)
            .map_or("unknown", |(_, name)| name);
        f.pad(name)
    }
}

/// A reason with its particulars. Written as `kind: detail`, in JSON too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyNot {
    pub kind: WhyNotKind,
    /// Names the thing and the evidence, for people.
    pub detail: String,
}

impl WhyNot {
    pub fn new(kind: WhyNotKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

impl FromStr for WhyNot {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, detail) = text.split_once(": ").unwrap_or((text, ""));
        let kind = KINDS.iter().find(|(_, n)| *n == name).map(|(kind, _)| *kind);
        kind.map(|kind| WhyNot::new(kind, detail))
            .ok_or_else(|| format!("{name:?} is not a known reason"))
    }
}

/// What stands for it in JSON.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Members {
    composable: bool,
    #[serde(default)]
    why_not: Option<String>,
}

/// Whether a GPU can be moved, else why not. In JSON two members: `composable` and `why_not`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(try_from = "Members", into = "Members"))]
pub struct Composability(pub Option<WhyNot>);

impl Composability {
    pub const YES: Composability = Composability(None);

    pub fn no(kind: WhyNotKind, detail: impl Into<String>) -> Self {
        Self(Some(WhyNot::new(kind, detail)))
    }

    pub fn is_composable(&self) -> bool {
        self.0.is_none()
    }
}

impl Serialize for Composability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("composable", &self.is_composable())?;
        map.serialize_entry("why_not", &self.0.as_ref().map(WhyNot::to_string))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Composability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Members { composable, why_not } = Members::deserialize(deserializer)?;
        match (composable, why_not) {
            (true, None) => Ok(Self::YES),
            (false, Some(text)) => text.parse().map(|why| Self(Some(why))).map_err(D::Error::custom),
            (true, Some(_)) => Err(D::Error::custom("composable is true, so why_not must be null")),
            (false, None) => Err(D::Error::custom("composable is false, so why_not must say why")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_being_saved() {
        for (kind, _) in KINDS.iter().copied() {
            let value = Composability::no(kind, "HGX baseboard: 8 GPUs");
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(
                serde_json::from_str::<Composability>(&json).unwrap(),
                value,
                "{json}"
            );
        }
        assert_eq!(
            serde_json::to_string(&Composability::YES).unwrap(),
            r#"{"composable":true,"why_not":null}"#
        );
    }

    #[test]
    fn a_contradiction_is_refused() {
        assert!(serde_json::from_str::<Composability>(r#"{"composable":false,"why_not":null}"#).is_err());
    }
}
