//! Who is sent what happens: kept in the store, so that it goes on after a restart and at whatever manager.

use super::Composer;
use crate::accounts::{self, AccountVersion};
use crate::error::{ErrorCode, ServiceError};
use crate::sealed::Sealed;
use crate::subscription::{Headers, MOST, MOST_OF_ONE, NewSubscription, Subscription, SubscriptionChange};
use poolwright_store::{Batch, Stored, Versioned, read, read_all};

/// Under which name the headers of a subscription are sealed: they are sent to no other place.
fn name_of(subscription: &Subscription) -> String {
    let Subscription { id, destination, .. } = subscription;
    format!("headers of subscription {id} to {destination}")
}

impl Composer {
    /// In the order of their ids.
    #[crate::boxed]
    pub async fn subscriptions(&self) -> Result<Vec<Subscription>, ServiceError> {
        let found = read_all::<Subscription>(self.store.as_ref()).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }

    #[crate::boxed]
    pub async fn subscription(&self, id: &str) -> Result<Subscription, ServiceError> {
        Ok(self.kept_subscription(id).await?.value)
    }

    async fn kept_subscription(&self, id: &str) -> Result<Versioned<Subscription>, ServiceError> {
        let found = read::<Subscription>(self.store.as_ref(), id).await?;
        found.ok_or_else(|| ServiceError::not_found("subscription", id))
    }

    /// Sends what happens from now on.
    #[crate::boxed]
    pub async fn subscribe(
        &self,
        account: &str,
        version: &AccountVersion,
        new: NewSubscription,
    ) -> Result<Subscription, ServiceError> {
        let known = self.subscriptions().await?;
        let own = known.iter().filter(|known| known.is_of(version)).count();
        if own >= MOST_OF_ONE || known.len() >= MOST {
            let message =
                format!("there may be {MOST_OF_ONE} subscriptions of an account, and {MOST} of all");
            return Err(
                ServiceError::new(ErrorCode::Conflict, message).with_hint("remove one that is not needed")
            );
        }
        let mut subscription = Subscription {
            id: self.new_id(),
            account: account.to_owned(),
            bound_to: Some(version.clone()),
            destination: new.destination.to_string(),
            context: new.context,
            chosen: new.chosen,
            retry: new.retry,
            created: self.clock.now(),
            has_headers: false,
            suspended: None,
            upto: self.last_happened().await?,
        };
        let mut batch = Batch::new();
        self.seal_headers(&mut subscription, &new.headers, &mut batch)?;
        batch.expect(Subscription::KIND, &subscription.id, None);
        batch.put(&subscription)?;
        self.store.commit(batch).await?;
        Ok(subscription)
    }

    #[crate::boxed]
    pub async fn change_subscription(
        &self,
        id: &str,
        change: SubscriptionChange,
    ) -> Result<Subscription, ServiceError> {
        let Versioned { mut value, revision } = self.kept_subscription(id).await?;
        let mut batch = Batch::new();
        batch.expect(Subscription::KIND, id, Some(revision));
        value.context = change.context.or(value.context);
        value.retry = change.retry.unwrap_or(value.retry);
        if let Some(headers) = &change.headers {
            self.seal_headers(&mut value, headers, &mut batch)?;
        }
        if let Some(suspended) = change.suspended {
            if suspended.is_none() {
                value.bound_to = Some(self.resumed_for(&value).await?);
                value.upto = self.last_happened().await?;
            }
            value.suspended = suspended;
        }
        batch.put(&value)?;
        self.store.commit(batch).await?;
        Ok(value)
    }

    /// Its account as it is now. A new account of the same name must not resume it.
    async fn resumed_for(&self, subscription: &Subscription) -> Result<AccountVersion, ServiceError> {
        let name = &subscription.account;
        let now = accounts::version_of(self.store.as_ref(), name).await?;
        now.filter(|now| subscription.is_of(now)).ok_or_else(|| {
            let message = format!("the account {name} that subscribed was deleted or disabled");
            ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("enable it, or remove the subscription and subscribe with another account")
        })
    }

    #[crate::boxed]
    pub async fn unsubscribe(&self, id: &str) -> Result<(), ServiceError> {
        let Versioned { value, revision } = self.kept_subscription(id).await?;
        let mut batch = Batch::new();
        batch.expect(Subscription::KIND, id, Some(revision));
        batch.delete(Subscription::KIND, id);
        if value.has_headers {
            batch.delete(Sealed::KIND, &name_of(&value));
        }
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Notes how far a destination has come. Not where somebody changed it meanwhile.
    #[crate::boxed]
    pub async fn note_delivered(&self, id: &str, upto: u64) -> Result<(), ServiceError> {
        let Versioned { mut value, revision } = self.kept_subscription(id).await?;
        if value.suspended.is_some() || value.upto >= upto {
            return Ok(());
        }
        value.upto = upto;
        let mut batch = Batch::new();
        batch.expect(Subscription::KIND, id, Some(revision));
        batch.put(&value)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// What is sent with events there.
    #[crate::boxed]
    pub async fn subscription_headers(&self, subscription: &Subscription) -> Result<Headers, ServiceError> {
        if !subscription.has_headers {
            return Ok(Headers::default());
        }
        let name = name_of(subscription);
        let found = read::<Sealed>(self.store.as_ref(), &name).await?;
        let opened = found.and_then(|found| self.options.keys.opened(&found.value));
        let headers = opened.and_then(|text| serde_json::from_str(&text).ok());
        headers.ok_or_else(|| {
            let message = format!("the {name} can't be opened with the keys that this manager has");
            ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("start it with the --cluster-key-file of the manager that was given them, or PATCH HttpHeaders")
        })
    }

    /// Whether it is for this manager to send: of several that share a store one does.
    pub fn sends_events(&self) -> bool {
        self.leases.as_ref().is_none_or(|leases| leases.has_calendar())
    }

    fn seal_headers(
        &self,
        subscription: &mut Subscription,
        headers: &Headers,
        batch: &mut Batch,
    ) -> Result<(), ServiceError> {
        let name = name_of(subscription);
        if headers.0.is_empty() {
            if std::mem::take(&mut subscription.has_headers) {
                batch.delete(Sealed::KIND, &name);
            }
            return Ok(());
        }
        let key = self.options.keys.sealing().ok_or_else(|| {
            let message = "headers can't be kept: this manager has no key to seal them with";
            ServiceError::new(ErrorCode::Conflict, message).with_hint("start it with --cluster-key-file")
        })?;
        let text = serde_json::to_string(headers)
            .map_err(|error| ServiceError::new(ErrorCode::Internal, error.to_string()))?;
        batch.put(&key.seal(&name, &text)?)?;
        subscription.has_headers = true;
        Ok(())
    }
}
