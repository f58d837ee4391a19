//! Request bodies: each rule once fulfilled and once broken.

use poolwright_redfish_model::check::{check_action, check_create, check_update, check_update_allowing};
use poolwright_redfish_model::schema::Type;
use poolwright_redfish_model::{
    CompositionService, ComputerSystem, Connection, EventDestination, Fabric, Manager, ManagerAccount,
    RESOURCES, Session, TaskService, Zone,
};
use serde_json::{Value, json};

/// What a row of a table expects: (message, path, arguments).
type Expected<'a> = &'a [(&'a str, &'a str, &'a [&'a str])];

fn assert_found(
    found: Vec<poolwright_redfish_model::check::Violation>,
    expected: Expected<'_>,
    body: &Value,
) {
    let found: Vec<_> = found
        .iter()
        .map(|v| (v.message, v.path.as_str(), v.args.as_slice()))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(message, path, args)| {
            (
                *message,
                *path,
                args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>(),
            )
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(message, path, args)| (*message, *path, args.as_slice()))
        .collect();
    assert_eq!(found, expected, "{body}");
}

#[test]
fn updates() {
    let rows: &[(&Type, Value, Expected<'_>)] = &[
        (ComputerSystem::SCHEMA, json!({"AssetTag": "rack 7"}), &[]),
        (ComputerSystem::SCHEMA, json!({"AssetTag": null}), &[]),
        (
            ComputerSystem::SCHEMA,
            json!({"Boot": {"BootSourceOverrideTarget": "Pxe"}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Boot": {"BootOrder": ["1", null, {}]}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"@odata.etag": "x", "AssetTag@Contoso.Why": 1, "Oem": {"Contoso": 1}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Assettag": "x", "Boot": {"Target/~": 1}}),
            &[
                ("PropertyUnknown", "/Assettag", &["Assettag"]),
                ("PropertyUnknown", "/Boot/Target~1~0", &["Target/~"]),
            ],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"PowerState": "Off", "Actions": {}, "Status": {"State": "Enabled"}}),
            &[
                ("PropertyNotWritable", "/PowerState", &["PowerState"]),
                ("PropertyNotWritable", "/Actions", &["Actions"]),
                ("PropertyNotWritable", "/Status", &["Status"]),
            ],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Boot": {"BootSourceOverrideTarget": "Moon", "BootOrder": ["1", 2]}, "AssetTag": 7}),
            &[
                (
                    "PropertyValueNotInList",
                    "/Boot/BootSourceOverrideTarget",
                    &["Moon", "BootSourceOverrideTarget"],
                ),
                ("PropertyValueTypeError", "/Boot/BootOrder/1", &["2", "BootOrder"]),
                ("PropertyValueTypeError", "/AssetTag", &["7", "AssetTag"]),
            ],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Boot": [], "LocationIndicatorActive": "on"}),
            &[
                ("PropertyValueTypeError", "/Boot", &["[]", "Boot"]),
                (
                    "PropertyValueTypeError",
                    "/LocationIndicatorActive",
                    &["on", "LocationIndicatorActive"],
                ),
            ],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Links": {"ResourceBlocks": [{"@odata.id": "/b/1"}]}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Links": {"ResourceBlocks": ["/b/1", {"Name": "b"}], "Chassis": [{"@odata.id": "/c"}]}}),
            &[
                (
                    "PropertyValueTypeError",
                    "/Links/ResourceBlocks/0",
                    &["/b/1", "ResourceBlocks"],
                ),
                (
                    "PropertyValueTypeError",
                    "/Links/ResourceBlocks/1",
                    &["{\"Name\":\"b\"}", "ResourceBlocks"],
                ),
                ("PropertyNotWritable", "/Links/Chassis", &["Chassis"]),
            ],
        ),
        (Zone::SCHEMA, json!([]), &[("UnrecognizedRequestBody", "", &[])]),
        (
            TaskService::SCHEMA,
            json!({"TaskAutoDeleteTimeoutMinutes": 0}),
            &[(
                "PropertyValueOutOfRange",
                "/TaskAutoDeleteTimeoutMinutes",
                &["0", "TaskAutoDeleteTimeoutMinutes"],
            )],
        ),
        (
            TaskService::SCHEMA,
            json!({"TaskAutoDeleteTimeoutMinutes": 1}),
            &[],
        ),
        (
            Fabric::SCHEMA,
            json!({"UUID": "GPU-1"}),
            &[("PropertyValueFormatError", "/UUID", &["GPU-1", "UUID"])],
        ),
    ];
    for (schema, body, expected) in rows {
        assert_found(check_update(schema, body), expected, body);
    }
}

#[test]
fn a_service_may_let_more_be_written() {
    let endpoints = json!({"Links": {"Endpoints": [{"@odata.id": "/e/1"}]}});
    let refused: Expected<'_> = &[("PropertyNotWritable", "/Links/Endpoints", &["Endpoints"])];
    assert_found(check_update(Zone::SCHEMA, &endpoints), refused, &endpoints);
    assert_found(
        check_update_allowing(Zone::SCHEMA, &endpoints, &["/Links/Endpoints"]),
        &[],
        &endpoints,
    );
    let bad = json!({"Links": {"Endpoints": ["/e/1"], "InvolvedSwitches": []}});
    assert_found(
        check_update_allowing(Zone::SCHEMA, &bad, &["/Links/Endpoints"]),
        &[
            (
                "PropertyValueTypeError",
                "/Links/Endpoints/0",
                &["/e/1", "Endpoints"],
            ),
            (
                "PropertyNotWritable",
                "/Links/InvolvedSwitches",
                &["InvolvedSwitches"],
            ),
        ],
        &bad,
    );
}

#[test]
fn creations() {
    let rows: &[(&Type, Value, Expected<'_>)] = &[
        // composition, specific
        (
            ComputerSystem::SCHEMA,
            json!({"Name": "c", "Links": {"ResourceBlocks": [{"@odata.id": "/b"}]}}),
            &[],
        ),
        // composition, constrained: the wanted resources stand in place of links
        (
            ComputerSystem::SCHEMA,
            json!({"Name": "c", "Processors": {"Members": [{"@Redfish.RequestedCount": 4, "ProcessorType": "GPU"}]}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            json!({"Processors": {"Members": [{"ProcessorType": "Gpu", "Cores": 1}]}}),
            &[
                (
                    "PropertyValueNotInList",
                    "/Processors/Members/0/ProcessorType",
                    &["Gpu", "ProcessorType"],
                ),
                ("PropertyUnknown", "/Processors/Members/0/Cores", &["Cores"]),
            ],
        ),
        (
            Zone::SCHEMA,
            json!({"ZoneType": "ZoneOfEndpoints", "Links": {"Endpoints": [{"@odata.id": "/e"}]}}),
            &[],
        ),
        (Connection::SCHEMA, json!({"ConnectionType": "Memory"}), &[]),
        (Session::SCHEMA, json!({"UserName": "u", "Password": "p"}), &[]),
        (
            Session::SCHEMA,
            json!({"UserName": "u"}),
            &[("PropertyMissing", "/Password", &["Password"])],
        ),
        (
            ManagerAccount::SCHEMA,
            json!({"UserName": 5, "Password": "p"}),
            &[
                ("PropertyValueTypeError", "/UserName", &["5", "UserName"]),
                ("PropertyMissing", "/RoleId", &["RoleId"]),
            ],
        ),
        (
            EventDestination::SCHEMA,
            json!({"Protocol": "Redfish", "Destination": "https://c", "Context": "x"}),
            &[],
        ),
    ];
    for (schema, body, expected) in rows {
        assert_found(check_create(schema, body), expected, body);
    }
}

#[test]
fn texts_have_their_format() {
    for (text, date_time, duration, guid) in [
        ("2026-11-21T08:52:00Z", true, false, false),
        ("2026-11-21T08:52:00.25+01:00", true, false, false),
        ("2026-11-21T08:52:00", false, false, false),
        ("2026-11-21T08:52:00.Z", false, false, false),
        ("2026-11-21", false, false, false),
        ("PT3H", false, true, false),
        ("P1DT2H30M0.5S", false, true, false),
        ("-P1D", false, true, false),
        ("P", false, false, false),
        ("PT", false, false, false),
        ("PT3M2H", false, false, false),
        ("PT1.5H", false, false, false),
        ("PTH", false, false, false),
        ("3 hours", false, false, false),
        ("6d1cf5b2-0f5a-4b8e-9c3e-0a1b2c3d4e5f", false, false, true),
        ("GPU-6d1cf5b2-0f5a-4b8e-9c3e-0a1b2c3d4e5f", false, false, false),
        ("", false, false, false),
    ] {
        let well_formed = [
            (Manager::SCHEMA, "DateTime"),
            (CompositionService::SCHEMA, "ReservationDuration"),
            (ComputerSystem::SCHEMA, "UUID"),
        ]
        .map(
            |(schema, name)| match check_create(schema, &json!({name: text})).as_slice() {
                [] => true,
                [found] if found.message == "PropertyValueFormatError" => false,
                others => panic!("{text}: {others:?}"),
            },
        );
        assert_eq!(well_formed, [date_time, duration, guid], "{text}");
    }
}

#[test]
fn actions() {
    let compose = "CompositionService.Compose";
    let rows: &[(&Type, &str, Value, Expected<'_>)] = &[
        (
            ComputerSystem::SCHEMA,
            "#ComputerSystem.Reset",
            json!({"ResetType": "ForceOff"}),
            &[],
        ),
        (ComputerSystem::SCHEMA, "ComputerSystem.Reset", Value::Null, &[]),
        (
            ComputerSystem::SCHEMA,
            "ComputerSystem.Reset",
            json!({"ResetType": "Smash", "Hard": true}),
            &[
                (
                    "ActionParameterValueNotInList",
                    "/ResetType",
                    &["Smash", "ResetType", "ComputerSystem.Reset"],
                ),
                (
                    "ActionParameterUnknown",
                    "/Hard",
                    &["ComputerSystem.Reset", "Hard"],
                ),
            ],
        ),
        (
            ComputerSystem::SCHEMA,
            "ComputerSystem.Explode",
            json!({}),
            &[("ActionNotSupported", "", &["ComputerSystem.Explode"])],
        ),
        (
            ComputerSystem::SCHEMA,
            "ComputerSystem.AddResourceBlock",
            json!({}),
            &[(
                "ActionParameterMissing",
                "/ResourceBlock",
                &["ComputerSystem.AddResourceBlock", "ResourceBlock"],
            )],
        ),
        (
            ComputerSystem::SCHEMA,
            "ComputerSystem.AddResourceBlock",
            json!({"ResourceBlock": {"@odata.id": "/b"}}),
            &[],
        ),
        (
            ComputerSystem::SCHEMA,
            "ComputerSystem.AddResourceBlock",
            json!({"ResourceBlock": "/b"}),
            &[(
                "ActionParameterValueTypeError",
                "/ResourceBlock",
                &["/b", "ResourceBlock", "ComputerSystem.AddResourceBlock"],
            )],
        ),
        (
            CompositionService::SCHEMA,
            compose,
            json!({"RequestFormat": "Manifest", "RequestType": "Apply", "Manifest": {"Stanzas": [
                {"StanzaType": "ComposeSystem", "StanzaId": "1", "Request": {"Links": {}}},
            ]}}),
            &[],
        ),
        (
            CompositionService::SCHEMA,
            compose,
            json!({"RequestFormat": "Manifest", "Manifest": {"Stanzas": [{"StanzaType": "Dance"}], "Colour": "red"}}),
            &[
                (
                    "PropertyValueNotInList",
                    "/Manifest/Stanzas/0/StanzaType",
                    &["Dance", "StanzaType"],
                ),
                ("PropertyUnknown", "/Manifest/Colour", &["Colour"]),
                (
                    "ActionParameterMissing",
                    "/RequestType",
                    &[compose, "RequestType"],
                ),
            ],
        ),
    ];
    for (schema, action, body, expected) in rows {
        assert_found(check_action(schema, action, body), expected, body);
    }
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let found = check_update(ComputerSystem::SCHEMA, &json!({"AssetTag": [("é".repeat(1000))]}));
    assert!(found[0].args[0].chars().count() <= 81, "{}", found[0].args[0]);
}

#[test]
fn every_resource_has_a_table_that_refuses() {
    for resource in RESOURCES {
        let found = check_update(resource, &json!({"NoSuchProperty": 1}));
        assert_found(
            found,
            &[("PropertyUnknown", "/NoSuchProperty", &["NoSuchProperty"])],
            &json!(resource.name),
        );
    }
}
