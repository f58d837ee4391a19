//! The certificates that an endpoint is believed by: the next one can be pinned before it is shown, so that renewing it
//! cuts nobody off.

use super::Composer;
use crate::endpoint::{Endpoint, Pins, Trust};
use crate::error::{ErrorCode, ServiceError};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Stored, Versioned};
use serde::{Deserialize, Serialize};

/// One change of an endpoint's pins: SHA-256 fingerprints in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PinChange {
    /// Believe this one, too.
    Add(String),
    /// Believe this one no more.
    Remove(String),
}

impl Pins {
    /// Whether each is a fingerprint.
    pub(super) fn check(&self) -> Result<(), ServiceError> {
        let pins = match self {
            Self::One(pin) => std::slice::from_ref(pin),
            Self::Two(pins) => pins.as_slice(),
        };
        match pins.iter().find(|pin| digits(pin).is_none()) {
            Some(pin) => Err(no_fingerprint(pin)),
            None => Ok(()),
        }
    }

    fn changed(&self, change: &PinChange) -> Result<Self, ServiceError> {
        let conflict = |message: String, hint: &str| {
            Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint))
        };
        let is = |known: &str, pin: &str| digits(known).is_some_and(|known| Some(known) == digits(pin));
        match (self, change) {
            (_, PinChange::Add(pin)) if digits(pin).is_none() => Err(no_fingerprint(pin)),
            (Self::One(one), PinChange::Add(pin)) if is(one, pin) => Ok(self.clone()),
            (Self::One(one), PinChange::Add(pin)) => Ok(Self::Two([one.clone(), pin.clone()])),
            (Self::Two([one, next]), PinChange::Add(pin)) if is(one, pin) || is(next, pin) => {
                Ok(self.clone())
            }
            (Self::Two([one, _]), PinChange::Add(_)) => conflict(
                "two certificates are pinned already".to_owned(),
                &format!("remove the one that is shown no more first, such as {one}"),
            ),
            (Self::Two([one, next]), PinChange::Remove(pin)) if is(one, pin) => Ok(Self::One(next.clone())),
            (Self::Two([one, next]), PinChange::Remove(pin)) if is(next, pin) => Ok(Self::One(one.clone())),
            (Self::One(one), PinChange::Remove(pin)) if is(one, pin) => conflict(
                "it is the only certificate that is believed".to_owned(),
                "add the next one first",
            ),
            (_, PinChange::Remove(pin)) => conflict(
                format!("the certificate {pin} is not pinned"),
                "poolwright endpoint list -o json shows which are",
            ),
        }
    }
}

fn no_fingerprint(pin: &str) -> ServiceError {
    let message = format!("{pin:?} is no SHA-256 fingerprint: it needs 64 hexadecimal digits");
    ServiceError::bad_request(message).with_hint("openssl x509 -in FILE -noout -fingerprint -sha256 shows it")
}

/// The 64 hexadecimal digits of a fingerprint, written as by openssl or bare.
fn digits(pin: &str) -> Option<String> {
    let bare = pin.trim().to_ascii_lowercase().replace(':', "");
    let bare = bare.strip_prefix("sha256").unwrap_or(&bare);
    let good = bare.len() == 64 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| bare.to_owned())
}

impl Composer {
    /// Believes another certificate of an endpoint, too, or one less. Who is connected stays so.
    #[crate::boxed]
    pub async fn change_pins(
        &self,
        id: &ControlEndpointId,
        change: &PinChange,
    ) -> Result<Endpoint, ServiceError> {
        let Versioned { mut value, revision } = self.kept_endpoint(id).await?;
        let Trust::Pinned(pins) = &value.spec.trust else {
            let message = format!("endpoint {id} is not believed by a pinned certificate");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("one that an authority has signed may be renewed without this"));
        };
        value.spec.trust = Trust::Pinned(pins.changed(change)?);
        let mut batch = Batch::new();
        batch
            .expect(Endpoint::KIND, id.as_str(), Some(revision))
            .put(&value)?;
        self.store.commit(batch).await?;
        self.connections.drop_driver(id).await;
        self.endpoint(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_certificate_is_pinned_in_advance_and_the_old_one_let_go() {
        let [old, next, third] = ["A", "B", "C"].map(|digit| digit.repeat(64));
        let add = |pin: &str| PinChange::Add(pin.to_owned());
        let remove = |pin: &str| PinChange::Remove(pin.to_owned());
        let one = Pins::One(old.clone());
        let two = one.changed(&add(&next)).unwrap();
        assert_eq!(two, Pins::Two([old.clone(), next.clone()]));
        assert_eq!(two.changed(&add(&old.to_lowercase())), Ok(two.clone()), "known");
        for refused in [
            two.changed(&add(&third)),
            two.changed(&remove(&third)),
            one.changed(&remove(&old)),
        ] {
            assert_eq!(refused.unwrap_err().code, ErrorCode::Conflict);
        }
        let with_prefix = format!("sha256:{}", old.to_lowercase());
        assert_eq!(two.changed(&remove(&with_prefix)), Ok(Pins::One(next)));
        assert_eq!(one.changed(&add("AB")).unwrap_err().code, ErrorCode::BadRequest);
    }

    #[test]
    fn one_pin_is_written_as_before() {
        let kept = serde_json::json!({"pinned": "AB"});
        let trust: Trust = serde_json::from_value(kept.clone()).unwrap();
        assert_eq!(serde_json::to_value(&trust).unwrap(), kept);
        let two: Trust = serde_json::from_value(serde_json::json!({"pinned": ["AB", "CD"]})).unwrap();
        assert_eq!(two, Trust::Pinned(Pins::Two(["AB".into(), "CD".into()])));
    }
}
