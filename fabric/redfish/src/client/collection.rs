//! Collections: page by page, each page once, each member once, and never without end.
//!
//! The first page must be there; whatever is wrong after that costs only what it touches and is told in `faults`.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::document::{self, Annotations, Resource};
use super::error::{Error, ErrorKind, LinkFault, Result};
use super::exchange::{Request, link_error};
use super::path::Place;
use super::{Client, classify};

/// Members in one page. A real page has dozens; this bounds what a hostile one makes us hold.
const MAX_PAGE_MEMBERS: usize = 65_536;

/// What a collection holds. Complete only if `faults` is empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection<M> {
    pub members: Vec<M>,
    /// How many there are by the service's word, which is nothing to rely on.
    pub claimed: Option<u64>,
    /// Pages and members that could not be read or followed.
    pub faults: Vec<Error>,
}

/// One member: where it is, and what came of reading it. A dangling link is a fact about the service.
#[derive(Debug, Clone, PartialEq)]
pub struct Member<T> {
    pub path: String,
    pub outcome: Result<Resource<T>>,
}

/// One page of a collection, borrowing from its bytes.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, rename = "Members", deserialize_with = "bounded")]
    members: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "Members@odata.nextLink", alias = "@odata.nextLink")]
    next: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Members@odata.count")]
    count: Option<&'a RawValue>,
}

/// What a walk through the pages says besides the members.
#[derive(Default)]
struct Walked {
    claimed: Option<u64>,
    faults: Vec<Error>,
}

struct PageBody {
    bytes: Bytes,
    asked_to_expand: bool,
}

/// What a page says of one member.
struct Entry<'a> {
    place: Place,
    etag: Option<String>,
    /// The whole member, where the service expanded it.
    expanded: Option<&'a RawValue>,
}

impl Client {
    /// The paths of a collection's members, in the service's order.
    pub async fn collection_members(&self, path: &str) -> Result<Collection<String>> {
        let mut members = Vec::new();
        let Walked { claimed, faults } = self
            .walk(path, false, |entry| members.push(entry.place.as_str().to_owned()))
            .await?;
        Ok(Collection {
            members,
            claimed,
            faults,
        })
    }

    /// The members of a collection, each read as `T`: with `$expand` where the service offers it and it is true,
    /// else one GET each, as many at once as the endpoint's limit allows.
    pub async fn read_members<T: DeserializeOwned + Send>(
        &self,
        path: &str,
    ) -> Result<Collection<Member<T>>> {
        self.members(path, false).await
    }

    /// The same for members whose links nobody follows: they let go first what leads on to others.
    pub async fn read_leaves<T: DeserializeOwned + Send>(&self, path: &str) -> Result<Collection<Member<T>>> {
        self.members(path, true).await
    }

    async fn members<T: DeserializeOwned + Send>(
        &self,
        path: &str,
        leaves: bool,
    ) -> Result<Collection<Member<T>>> {
        enum Slot<T> {
            Read(Member<T>),
            ToRead(String),
        }
        let mut slots = Vec::new();
        let Walked { claimed, faults } = self
            .walk(path, true, |entry| {
                let path = entry.place.as_str().to_owned();
                slots.push(match entry.expanded {
                    Some(expanded) => {
                        let outcome = document::parse(expanded.get().as_bytes())
                            .map(|value| Resource {
                                path: path.clone(),
                                etag: entry.etag,
                                value,
                            })
                            .map_err(|why| Error::harmless(format!("GET {}", entry.place.url()), why));
                        Slot::Read(Member { path, outcome })
                    }
                    None => Slot::ToRead(path),
                });
            })
            .await?;
        let members = futures_util::stream::iter(slots)
            .map(|slot| async move {
                match slot {
                    Slot::Read(member) => member,
                    Slot::ToRead(path) => {
                        let _turn = match leaves {
                            true => Some(self.0.wire.leaf_turn().await),
                            false => None,
                        };
                        let outcome = self.read(&path).await;
                        Member { path, outcome }
                    }
                }
            })
            .buffered(self.limits().concurrency.max(1))
            .collect()
            .await;
        Ok(Collection {
            members,
            claimed,
            faults,
        })
    }

    /// Goes through the pages and hands over each member once. Returns what went wrong after the first page.
    async fn walk(&self, path: &str, expand: bool, mut each: impl FnMut(Entry<'_>)) -> Result<Walked> {
        let limits = self.limits();
        let first = self.place(path, "GET")?;
        let mut walked = Walked::default();
        let mut pages = HashSet::new();
        let mut seen = HashSet::new();
        let mut next = Some(first);
        while let Some(place) = next.take() {
            let name = || format!("GET {}", place.url());
            if !pages.insert(place.as_str().to_owned()) {
                walked.faults.push(Error::harmless(
                    name(),
                    ErrorKind::PageLoop(place.as_str().to_owned()),
                ));
                break;
            }
            if pages.len() > limits.pages {
                walked.faults.push(Error::harmless(
                    name(),
                    ErrorKind::TooMany {
                        what: "pages",
                        limit: limits.pages,
                    },
                ));
                break;
            }
            let is_first = pages.len() == 1;
            let read = self.page(&place, expand && is_first).await;
            let parsed = read.as_ref().map_err(Clone::clone).and_then(|body| {
                serde_json::from_slice::<Page<'_>>(document::without_bom(&body.bytes))
                    .map(|page| (page, body.asked_to_expand))
                    .map_err(|e| Error::harmless(name(), classify::json(&e)))
            });
            let (page, asked_to_expand) = match parsed {
                Ok(page) => page,
                Err(error) if is_first => return Err(error),
                Err(error) => {
                    walked.faults.push(error);
                    break;
                }
            };
            if is_first {
                walked.claimed = page
                    .count
                    .and_then(|count| serde_json::from_str(count.get()).ok());
            }
            for member in &page.members {
                match self.entry(&place, member, &name, asked_to_expand) {
                    Ok(entry) => {
                        if seen.len() == limits.members {
                            let kind = ErrorKind::TooMany {
                                what: "members",
                                limit: limits.members,
                            };
                            walked.faults.push(Error::harmless(name(), kind));
                            return Ok(walked);
                        }
                        if seen.insert(entry.place.folded()) {
                            each(entry);
                        }
                    }
                    Err(fault) => walked.faults.push(fault),
                }
            }
            match page.next.map(|link| self.next_page(link, &name)).transpose() {
                Ok(link) => next = link,
                Err(fault) => walked.faults.push(fault),
            }
        }
        Ok(walked)
    }

    /// The body of one page, expanded where that is asked for and can be relied on.
    async fn page(&self, place: &Place, expand: bool) -> Result<PageBody> {
        let cap = self.limits().document_bytes;
        if let Some(query) = self.expand().query().filter(|_| expand) {
            let expanded = place.with_query(query);
            match self.get_document(Request::get(&expanded, cap)).await {
                Ok(document) => {
                    return Ok(PageBody {
                        bytes: document.bytes().clone(),
                        asked_to_expand: true,
                    });
                }
                // Refused though advertised: a lie. Too large: true, but of no use here.
                Err(error) => match error.kind() {
                    ErrorKind::Refused(refusal) if matches!(refusal.status, 400 | 414 | 500 | 501) => {
                        self.expand().found_a_lie();
                    }
                    ErrorKind::Unreadable(_) | ErrorKind::ErrorBody(_) => {}
                    _ => return Err(error),
                },
            }
        }
        let document = self.get_document(Request::get(place, cap)).await?;
        Ok(PageBody {
            bytes: document.bytes().clone(),
            asked_to_expand: false,
        })
    }

    fn entry<'a>(
        &self,
        page: &Place,
        member: &'a RawValue,
        name: &dyn Fn() -> String,
        asked: bool,
    ) -> Result<Entry<'a>> {
        let annotations = Annotations::of_link(member).map_err(|why| Error::harmless(name(), why))?;
        let expanded = annotations.is_resource().then_some(member);
        let link = annotations
            .id
            .ok_or_else(|| link_error(name(), "", LinkFault::Missing))?;
        let place =
            Place::resolve_member(self.base(), page, &link).map_err(|why| link_error(name(), &link, why))?;
        if asked && expanded.is_none() {
            self.expand().found_a_lie();
        }
        Ok(Entry {
            place,
            etag: annotations.etag,
            expanded,
        })
    }

    fn next_page(&self, link: &RawValue, name: &dyn Fn() -> String) -> Result<Place> {
        let malformed = || link_error(name(), link.get(), LinkFault::Malformed);
        // A string by the standard; some services make it a reference.
        let link = Annotations::of_link(link)
            .ok()
            .and_then(|annotations| annotations.id)
            .ok_or_else(malformed)?;
        Place::resolve(self.base(), &link).map_err(|why| link_error(name(), &link, why))
    }
}

fn bounded<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'a RawValue>, D::Error> {
    struct Bounded;
    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of members")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = seq.next_element()? {
                if members.len() == MAX_PAGE_MEMBERS {
                    return Err(serde::de::Error::custom("more members than a page can have"));
                }
                members.push(member);
            }
            Ok(members)
        }
    }
    deserializer.deserialize_seq(Bounded)
}
