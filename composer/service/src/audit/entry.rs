//! What the audit log says, and how each entry is bound to the one before it.
//!
//! The digest of an entry covers what it says and the digest of the one before it. So whoever changes, removes or
//! reorders one has to make every later one anew, and then the last has another digest than the one that was noted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A change was asked for by somebody who may. Written before it is begun.
    Asked,
    /// What came of it.
    Answered,
    /// Somebody was not let in, or may not.
    Denied,
    /// Something is about to begin by itself. Written before it is begun.
    Began,
    /// How that ended.
    Ended,
}

/// What somebody did, or tried to do. Never a secret, and nothing of a body but names ([`super::said`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    pub kind: Kind,
    /// The account; nothing where it is not known who it was. What of the manager it is, where something runs by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The address that it came from; empty where something runs by itself.
    pub from: String,
    /// The method.
    pub what: String,
    /// The path.
    pub on: String,
    /// Names in the body.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub said: Map<String, Value>,
    /// The number of the entry that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// The HTTP status; nothing where there was no answer, for the client went away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The operation that was begun, or what was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// So many were denied alike since the last entry about them.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u64,
    /// The number of different paths of these; `on` is the last of them.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub paths: u64,
}

fn once() -> u64 {
    1
}

fn is_once(times: &u64) -> bool {
    *times == 1
}

/// A record in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AuditEntry"))]
pub struct Entry {
    /// 1, 2, 3 … without gaps.
    pub seq: u64,
    pub at: Timestamp,
    #[serde(flatten)]
    pub record: Record,
    /// SHA-256 of all that is above and of the digest before, in hexadecimal digits.
    pub hash: String,
}

/// A place in the log: with it everything up to there is told apart from anything else. Written as `SEQ:HASH`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AuditMark"))]
pub struct Mark {
    pub seq: u64,
    pub hash: String,
}

/// The first entry that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq}: {why}")]
pub struct Broken {
    pub seq: u64,
    pub why: String,
}

/// What a digest is made of.
#[derive(Serialize)]
struct Hashed<'a> {
    before: &'a str,
    seq: u64,
    at: Timestamp,
    #[serde(flatten)]
    record: &'a Record,
}

impl Entry {
    /// The entry that follows a place.
    pub fn after(before: &Mark, at: Timestamp, record: Record) -> serde_json::Result<Self> {
        let seq = before.seq + 1;
        let hash = digest(&before.hash, seq, at, &record)?;
        Ok(Self {
            seq,
            at,
            record,
            hash,
        })
    }

    pub fn mark(&self) -> Mark {
        Mark {
            seq: self.seq,
            hash: self.hash.clone(),
        }
    }
}

impl Mark {
    /// Goes on to the next entry, if that is the one that was written after this place.
    pub fn follow(&mut self, entry: &Entry) -> Result<(), Broken> {
        let expected = self.seq + 1;
        let broken = |why: String| Err(Broken { seq: expected, why });
        if entry.seq != expected {
            return broken(format!("is not there; number {} comes in its place", entry.seq));
        }
        match digest(&self.hash, entry.seq, entry.at, &entry.record) {
            Ok(hash) if hash == entry.hash => {
                *self = entry.mark();
                Ok(())
            }
            Ok(_) => broken("it, or the one before it, is not what was written".to_owned()),
            Err(error) => broken(format!("can't be read: {error}")),
        }
    }
}

fn digest(before: &str, seq: u64, at: Timestamp, record: &Record) -> serde_json::Result<String> {
    let text = serde_json::to_vec(&Hashed {
        before,
        seq,
        at,
        record,
    })?;
    let digest = Sha256::digest(text);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Most different addresses that one entry counts.
pub(super) const ADDRESSES: u64 = 1_000;

impl Record {
    /// Of a change that no request asked for.
    pub fn without_request(kind: Kind, by: &str, what: String, on: String) -> Self {
        Self {
            kind,
            by: Some(by.to_owned()),
            role: None,
            from: String::new(),
            what,
            on,
            said: Map::new(),
            answers: None,
            status: None,
            made: None,
            times: 1,
            paths: 1,
        }
    }

    /// For people, such as `295 addresses`.
    pub fn addresses(&self) -> String {
        let more = match self.paths {
            ADDRESSES.. => "at least ",
            _ => "",
        };
        format!("{more}{} addresses", in_thousands(self.paths))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            kind,
            by,
            role,
            from,
            what,
            on,
            said,
            answers,
            status,
            made,
            times,
            paths,
        } = &self.record;
        let who = by.as_deref().unwrap_or("an unknown client");
        let role = role
            .as_ref()
            .map_or_else(String::new, |role| format!(" ({role})"));
        let from = match from.is_empty() {
            true => String::new(),
            false => format!(" from {from}"),
        };
        let verb = match kind {
            Kind::Asked => "asked for",
            Kind::Answered => "was answered",
            Kind::Denied => "was denied",
            Kind::Began => "begins by itself",
            Kind::Ended => "ended",
        };
        match *paths {
            1 => write!(f, "{who}{role}{from} {verb} {what} {on}")?,
            _ => write!(
                f,
                "{who}{role}{from} {verb} {} requests to {}",
                in_thousands(*times),
                self.record.addresses()
            )?,
        }
        match (kind, status) {
            (_, Some(status)) => write!(f, ": {status}")?,
            (Kind::Answered, None) => f.write_str(": went away before the answer")?,
            _ => {}
        }
        if let Some(asked) = answers {
            write!(f, ", which entry {asked} asked for")?;
        }
        if let Some(made) = made {
            write!(f, ", made {made}")?;
        }
        if *times > 1 && *paths == 1 {
            write!(f, ", {times} times")?;
        }
        let said = said.iter().map(|(name, value)| format!(" {name}={value}"));
        said.take(4).try_for_each(|said| f.write_str(&said))
    }
}

/// Such as `2,087`.
fn in_thousands(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", in_thousands(thousands), number % 1_000),
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "a mark is SEQ:HASH, as `poolwright audit verify` prints it".to_owned();
        let (seq, hash) = text.split_once(':').ok_or_else(wanted)?;
        let seq = seq.parse().map_err(|_| wanted())?;
        let is_digest = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        match is_digest || (seq == 0 && hash.is_empty()) {
            true => Ok(Self {
                seq,
                hash: hash.to_lowercase(),
            }),
            false => Err(wanted()),
        }
    }
}
