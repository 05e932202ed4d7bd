"""From a folder of class folders to a trained and evaluated model: python examples/own_folder.py FOLDER."""

import sys

from sklearn.metrics import classification_report

from lmfcn import LMFCNClassifier
from lmfcn.data.leaks import check_split
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import split

images = open_collection(sys.argv[1])
parts = split(images.labels, groups=images.groups, random_state=0)
check_split(images, parts)
train, validation, test = (images[part] for part in (parts.train, parts.validation, parts.test))
classifier = LMFCNClassifier(random_state=0, verbose=True).fit(train, validation=validation)
print(classification_report(test.labels, classifier.predict(test)))
