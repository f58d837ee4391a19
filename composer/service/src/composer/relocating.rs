//! Relocation of hosts to other ports or racks. The host is empty and closed from the start of the move until it is
//! seen at its new ports. Its history records the move, and its UUID identifies it at both places.
//!
//! Invariants: a move closes the host before it checks that the host is empty, so no GPU can arrive after the check.
//! The end of a move opens the host only if the move closed it.

use super::Composer;
use super::asking::Check;
use crate::closure::{Close, HostClosure};
use crate::error::{ErrorCode, ServiceError};
use crate::host::{HostLife, HostPlace, HostTurn, Relocation};
use jiff::SignedDuration;
use poolwright_model::id::HostId;
use poolwright_store::{Batch, Stored, Versioned, read, read_all};

/// Maximum length of a destination.
const MOST_WORDS: usize = 200;
/// A move that takes longer is reported as late.
const LONG: SignedDuration = SignedDuration::from_hours(24);
/// The actor of automatic changes.
const BY: &str = "the manager";

impl Composer {
    /// Starts the move of a host. The host must be empty, and gets no GPUs until it is seen at its new place.
    #[crate::boxed]
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
            // A repeated request completes the remaining steps.
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
            let message = format!("host {id} is shown by no endpoint: its location is unknown");
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
                "no move is needed: it is recognized by its UUID when an endpoint shows it again",
            ));
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
            // A closure that starts later, or ends by itself, has another purpose.
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

    /// Checks again that a host that is closed for its move is empty, and records its departure. The check sees
    /// operations that began before the closure; later ones are refused.
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

    /// Completes a move at an operator's request, where the ports don't show the arrival.
    #[crate::boxed]
    pub async fn host_has_moved(&self, id: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        let _turn = self.turn.lock().await;
        let under_way = self.under_way(id).await?;
        if self.seen_host(id).await?.is_none() {
            let message = format!("host {id} is not shown by any endpoint yet");
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
                "switch it on and have its endpoints looked at: poolwright discover; if it never comes: poolwright host move \
                 --cancel, then poolwright host retire",
            ));
        }
        self.note_moved(&under_way, by).await?;
        self.host_life(id).await
    }

    /// Cancels a move.
    #[crate::boxed]
    pub async fn cancel_relocation(&self, id: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        let _turn = self.turn.lock().await;
        let under_way = self.under_way(id).await?;
        self.end_relocation(&under_way, Some((by, HostTurn::Stays)))
            .await?;
        self.host_life(id).await
    }

    /// Completes the moves of hosts that are seen at new ports. The clock calls this.
    pub(super) async fn note_arrivals(&self) -> Result<(), ServiceError> {
        for Versioned { value: under_way, .. } in read_all::<Relocation>(self.store.as_ref()).await? {
            let seen = self.seen_host(&under_way.host).await?;
            if !seen.is_some_and(|host| under_way.has_arrived(&host)) {
                continue;
            }
            let _turn = self.turn.lock().await;
            match self.note_moved(&under_way, BY).await {
                // Another request has completed or cancelled the move.
                Err(error) if error.code == ErrorCode::Conflict => {}
                noted => noted?,
            }
        }
        Ok(())
    }

    /// Reports moves that take too long.
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
                ServiceError::new(ErrorCode::Conflict, format!("host {id} is not being moved"))
                    .with_hint(format!("see its history: poolwright host history {id}")),
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

    /// Ends a move, records `noted` in the history, and opens the host if the move closed it.
    async fn end_relocation(
        &self,
        under_way: &Relocation,
        noted: Option<(&str, HostTurn)>,
    ) -> Result<(), ServiceError> {
        let id = &under_way.host;
        let found = read::<Relocation>(self.store.as_ref(), id.as_str()).await?;
        let Some(found) = found.filter(|found| found.value == *under_way) else {
            let message = format!("the move of host {id} was ended by another request");
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
