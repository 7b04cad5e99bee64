"""Quantised numbers: conversion and arithmetic."""
