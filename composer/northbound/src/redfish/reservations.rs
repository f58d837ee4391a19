//! What is kept for a client for a while, as resources.

use super::pool::Pool;
use super::{time, uri};
use poolwright_redfish_model::{
    Collection, CompositionReservation, CompositionReservationCollection, Resource,
};
use poolwright_service::Reservation;
use serde_json::{Value, json};

const AT: &str = "CompositionService/CompositionReservations";

pub(crate) fn all(open: &[Reservation]) -> CompositionReservationCollection {
    let places = open.iter().map(|one| uri::at(&format!("{AT}/{}", one.id)));
    CompositionReservationCollection::of(uri::at(AT), "Reservations", uri::links(places))
}

pub(crate) fn one(pool: &Pool, open: &[Reservation], id: &str) -> Option<Value> {
    let found = open.iter().find(|one| one.id == id)?;
    let blocks = found.places().filter_map(|place| pool.unit_block(&place.unit));
    let mut shown = json!(CompositionReservation {
        id: Some(id.into()),
        name: Some(format!("Reserved for {}", found.by)),
        description: Some(format!("It is over at {}", time(found.until))),
        client: Some(found.by.clone()),
        reservation_time: Some(time(found.since)),
        reserved_resource_blocks: Some(uri::links(blocks.map(uri::block))),
        ..CompositionReservation::at(uri::at(&format!("{AT}/{id}")))
    });
    if let Some(manifest) = &found.asked {
        shown["Manifest"] = manifest.clone();
    }
    Some(shown)
}
