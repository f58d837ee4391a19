//! Hosts that are carried to other ports, or to another place in the racks: empty and closed from when somebody says so
//! until they are seen where they came to, with what is written down of it. A host is known by its UUID wherever it is.
//!
//! Invariants: it is closed first, and looked at then: what nobody gives it any more can't have come meanwhile. What this has
//! closed it opens, and nothing else.

use super::Composer;
use super::asking::Check;
use crate::closure::{Close, HostClosure};
use crate::error::{ErrorCode, ServiceError};
use crate::host::{HostLife, HostPlace, HostTurn, Relocation};
use jiff::SignedDuration;
use poolwright_model::id::HostId;
use poolwright_store::{Batch, Stored, Versioned, read, read_all};

/// What is told of where a host is carried to, at most.
const MOST_WORDS: usize = 200;
/// Whoever carries a host is through with it by then.
const LONG: SignedDuration = SignedDuration::from_hours(24);
/// Who notes by itself that a host has come.
const BY: &str = "the manager";

impl Composer {
    /// Somebody is about to carry a host elsewhere: it is given nothing until it is seen there. It must be empty.
    pub async fn relocate_host(&self, id: &HostId, to: &str, by: &str) -> Result<HostLife, ServiceError> {
        let to: String = to.chars().filter(|c| !c.is_control()).take(MOST_WORDS).collect();
        if to.trim().is_empty() {
            let message = format!("host {id} is not moved without saying where to");
            return Err(ServiceError::bad_request(message)
                .with_hint("say it as people know it, such as --to \"rack 7, unit 12\""));
        }
        let _turn = self.turn.lock().await;
        let known = self.host_life(id).await?;
        if let Some(retired) = &known.retired {
            return Err(retired.refusal());
        }
        match &known.relocation {
            // Asked again, what is left to be done of it is done.
            Some(under_way) if under_way.to == to => {
                let told = known.of.events.iter().any(|event| {
                    event.at >= under_way.since && matches!(event.turn, HostTurn::Leaves { .. })
                });
                return match told {
                    true => Ok(known),
                    false => self.let_leave(under_way, by).await,
                };
            }
            Some(under_way) => return Err(under_way.refusal()),
            None => {}
        }
        let Some(host) = self.seen_host(id).await? else {
            let message = format!("host {id} is shown by nobody: where it is is not known");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("it is the same host wherever its UUID is seen next; nobody has to say so"));
        };
        let now = self.clock.now();
        let mut relocation = Relocation::of(&host, to, by, now)?;
        self.is_empty(id, "moved").await?;
        let closure = read::<HostClosure>(self.store.as_ref(), id.as_str()).await?;
        let closed = closure.as_ref().map(|known| &known.value.closure);
        let is_closed = closed.is_some_and(|closed| closed.holds(now) && closed.until.is_none());
        relocation.opens = !is_closed;
        let mut batch = Batch::new();
        batch
            .expect(Relocation::KIND, id.as_str(), None)
            .put(&relocation)?;
        if !is_closed {
            // One that closes later, or opens by itself, is there for something else.
            if let Some(stands) = closed.filter(|closed| !closed.is_over(now)) {
                let message = format!("host {id} {}", stands.tell(now));
                return Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint(format!("end that first: poolwright host open {id}")));
            }
            let close = Close {
                reason: format!("it is moved to {}", relocation.to),
                ..Close::default()
            };
            let revision = closure.as_ref().map(|known| known.revision);
            batch
                .expect(HostClosure::KIND, id.as_str(), revision)
                .put(&close.of(id, by, now)?)?;
        }
        self.commit_closure(batch, id).await?;
        self.let_leave(&relocation, by).await
    }

    /// Looks at a host that is closed for its move once more, and notes that it leaves. Whoever began before it was closed is
    /// seen now; whoever begins later is refused.
    async fn let_leave(&self, under_way: &Relocation, by: &str) -> Result<HostLife, ServiceError> {
        let id = &under_way.host;
        if let Err(refused) = self.is_empty(id, "moved").await {
            self.end_relocation(under_way, None).await?;
            return Err(refused);
        }
        tracing::warn!(host = %id, by, "moved to {}", under_way.to);
        let to = under_way.to.clone();
        let mut batch = Batch::new();
        let leaves = (id.clone(), by.to_owned(), HostTurn::Leaves { to });
        self.add_events(vec![leaves], &mut batch).await?;
        self.commit_of_hosts(batch).await?;
        self.host_life(id).await
    }

    /// It stands where it was to come, as somebody says: where its ports do not tell.
    pub async fn host_has_moved(&self, id: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        let _turn = self.turn.lock().await;
        let under_way = self.under_way(id).await?;
        if self.seen_host(id).await?.is_none() {
            let message = format!("host {id} is shown by nobody yet");
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
                "switch it on and have its endpoints looked at: poolwright discover; if it never comes: poolwright host move \
                 --cancel, then poolwright host retire",
            ));
        }
        self.note_moved(&under_way, by).await?;
        self.host_life(id).await
    }

    /// It stays where it is.
    pub async fn cancel_relocation(&self, id: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        let _turn = self.turn.lock().await;
        let under_way = self.under_way(id).await?;
        self.end_relocation(&under_way, Some((by, HostTurn::Stays)))
            .await?;
        self.host_life(id).await
    }

    /// Notes those that are seen where they came to. By the clock.
    pub(super) async fn note_arrivals(&self) -> Result<(), ServiceError> {
        for Versioned { value: under_way, .. } in read_all::<Relocation>(self.store.as_ref()).await? {
            let seen = self.seen_host(&under_way.host).await?;
            if !seen.is_some_and(|host| under_way.has_arrived(&host)) {
                continue;
            }
            let _turn = self.turn.lock().await;
            match self.note_moved(&under_way, BY).await {
                // Somebody else has noted it, or taken it back.
                Err(error) if error.code == ErrorCode::Conflict => {}
                noted => noted?,
            }
        }
        Ok(())
    }

    /// Hosts that should have come long ago.
    pub(super) async fn relocations_check(&self) -> Result<Option<Check>, ServiceError> {
        let now = self.clock.now();
        let all = read_all::<Relocation>(self.store.as_ref()).await?;
        let late: Vec<Relocation> = all
            .into_iter()
            .map(|found| found.value)
            .filter(|under_way| now.duration_since(under_way.since) > LONG)
            .collect();
        let told: Vec<String> = late.iter().map(ToString::to_string).collect();
        Ok(late.first().map(|first| {
            let hint = format!(
                "poolwright host move {0} --done, once it stands there; where it stays: poolwright host move {0} --cancel",
                first.host
            );
            Check::warning("hosts that are moved", told.join("; "), hint)
        }))
    }

    async fn under_way(&self, id: &HostId) -> Result<Relocation, ServiceError> {
        match self.host_life(id).await?.relocation {
            Some(under_way) => Ok(under_way),
            None => Err(
                ServiceError::new(ErrorCode::Conflict, format!("host {id} is not being moved")).with_hint(
                    format!("see what it has gone through: poolwright host history {id}"),
                ),
            ),
        }
    }

    async fn note_moved(&self, under_way: &Relocation, by: &str) -> Result<(), ServiceError> {
        let Some(host) = self.seen_host(&under_way.host).await? else {
            return Ok(());
        };
        let moved = HostTurn::Moved {
            to: under_way.to.clone(),
            from: under_way.from.clone(),
            now: HostPlace::of(&host),
        };
        self.end_relocation(under_way, Some((by, moved))).await?;
        tracing::warn!(host = %host.id, by, "has come to {}", under_way.to);
        Ok(())
    }

    /// It is over, with what is written down of that; the host is opened where this has closed it.
    async fn end_relocation(
        &self,
        under_way: &Relocation,
        noted: Option<(&str, HostTurn)>,
    ) -> Result<(), ServiceError> {
        let id = &under_way.host;
        let found = read::<Relocation>(self.store.as_ref(), id.as_str()).await?;
        let Some(found) = found.filter(|found| found.value == *under_way) else {
            let message = format!("somebody else has ended the move of host {id}");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("see how: poolwright host history {id}")));
        };
        let mut batch = Batch::new();
        batch
            .expect(Relocation::KIND, id.as_str(), Some(found.revision))
            .delete(Relocation::KIND, id.as_str());
        let closure = read::<HostClosure>(self.store.as_ref(), id.as_str()).await?;
        let own = closure.filter(|known| under_way.opens && known.value.since == under_way.since);
        if let Some(own) = own {
            batch
                .expect(HostClosure::KIND, id.as_str(), Some(own.revision))
                .delete(HostClosure::KIND, id.as_str());
        }
        let events = noted
            .into_iter()
            .map(|(by, turn)| (id.clone(), by.to_owned(), turn));
        self.add_events(events.collect(), &mut batch).await?;
        self.commit_closure(batch, id).await
    }
}
