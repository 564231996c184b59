//! What is sealed: secrets and the private part of an endpoint, each bound to its own row.

use railpost_wire::{EndpointId, SecretId, SigningKey};
use zeroize::Zeroizing;

use crate::{EndpointPrivate, MasterKey, Result, SecretValue, Setup, StoreError};

/// Encrypts the private part of an endpoint for that endpoint's row.
pub fn seal_endpoint(setup: &Setup, id: EndpointId, private: &EndpointPrivate) -> Vec<u8> {
    let plain = serde_json::to_vec(private).expect("texts and maps of texts are JSON");
    let plain = Zeroizing::new(plain);
    setup.master_key.seal(&*setup.source, &id.to_string(), &plain)
}

/// Decrypts what [`seal_endpoint`] made.
pub fn open_endpoint(key: &MasterKey, id: EndpointId, sealed: &[u8]) -> Result<EndpointPrivate> {
    let plain = key.open(&id.to_string(), sealed)?;
    serde_json::from_slice(&plain).map_err(|_| unreadable(&id.to_string()))
}

/// Encrypts a secret for that secret's row.
pub fn seal_secret(setup: &Setup, id: SecretId, value: &SecretValue) -> Vec<u8> {
    let text = match value {
        SecretValue::Shared(secret) => secret.reveal(),
        SecretValue::Signing(key) => key.reveal(),
    };
    setup.master_key.seal(&*setup.source, &id.to_string(), text.as_bytes())
}

/// Decrypts what [`seal_secret`] made.
pub fn open_secret(key: &MasterKey, id: SecretId, sealed: &[u8]) -> Result<SecretValue> {
    let refuse = || unreadable(&id.to_string());
    let plain = key.open(&id.to_string(), sealed)?;
    let text = str::from_utf8(&plain).map_err(|_| refuse())?;
    if text.starts_with(SigningKey::PREFIX) {
        return text.parse().map(SecretValue::Signing).map_err(|_| refuse());
    }
    text.parse().map(SecretValue::Shared).map_err(|_| refuse())
}

/// The private part of an endpoint under the current key, if it is under the one that a rotation replaces.
pub fn reseal_endpoint(setup: &Setup, id: EndpointId, sealed: &[u8]) -> Option<Vec<u8>> {
    setup.master_key.reseal(&*setup.source, &id.to_string(), sealed)
}

/// The same for a secret.
pub fn reseal_secret(setup: &Setup, id: SecretId, sealed: &[u8]) -> Option<Vec<u8>> {
    setup.master_key.reseal(&*setup.source, &id.to_string(), sealed)
}

/// The same for a stored answer.
pub fn reseal_answer(setup: &Setup, stored: &[u8]) -> Option<Vec<u8>> {
    setup.master_key.reseal_answer(&*setup.source, stored)
}

fn unreadable(id: &str) -> StoreError {
    StoreError::Corrupt(format!("the secret part of {id} decrypts to something else"))
}

/// Separates secrets of one endpoint that cannot be read from a failure of the store.
pub fn separate_unreadable<T>(secrets: Result<T>) -> Result<Result<T>> {
    match secrets {
        Err(error @ (StoreError::Corrupt(_) | StoreError::WrongMasterKey)) => Ok(Err(error)),
        secrets => secrets.map(Ok),
    }
}
